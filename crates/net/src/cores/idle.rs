//! The time that a core may take to leave an idle state (PM QoS).
//!
//! A core without work enters an idle state. The more power a state saves, the longer the core
//! takes to leave it, and each wake-up waits for that. The hypervisor must start a halted core of a
//! virtual machine. Linux lets programs limit this latency for all cores together with
//! `/dev/cpu_dma_latency`, as described in its Documentation/power/pm_qos_interface.rst. The lowest
//! requested limit is in force.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use sluice_core::Span;

/// Keeps all cores of the machine out of idle states with an exit latency above a limit, until this
/// is dropped or the process ends, however it ends: the kernel withdraws the limit when the file is
/// closed.
///
/// With zero, cores keep running while they have nothing to do. That costs power and, on a virtual
/// machine, processor time that the hypervisor could have given to others.
#[derive(Debug)]
pub struct IdleLimit {
    latency: Span,
    _device: File,
}

/// The reasons why idle states cannot be limited.
#[derive(Debug, thiserror::Error)]
pub enum IdleLimitError {
    /// The kernel does not provide the interface.
    #[error(
        "cannot limit the idle states of cores: there is no device {}; the kernel needs CONFIG_CPU_IDLE, and a container must be given the device",
        .path.display()
    )]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// This user or this container has no permission.
    #[error(
        "cannot limit the idle states of cores: {}: {source}; run as root, or give a group of this user write access to the device; a container must be given the device too",
        .path.display()
    )]
    NotAllowed {
        /// The device.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The latency is above the kernel's largest limit.
    #[error("no idle state has an exit latency of {latency}: expected less than {NOBODY}")]
    TooLong {
        /// The requested value.
        latency: Span,
    },
    /// The kernel refused.
    #[error("cannot {step} {}: {source}", .path.display())]
    Kernel {
        /// "open", "inspect", "read" or "write".
        step: &'static str,
        /// The device.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl IdleLimit {
    /// Limits the exit latency of idle states to `latency`, rounded down to whole microseconds.
    ///
    /// # Errors
    /// [`IdleLimitError`]: usually, that it needs root.
    pub fn hold(latency: Span) -> Result<IdleLimit, IdleLimitError> {
        IdleLimit::hold_at(Path::new(DEVICE), latency)
    }

    /// Returns the limit that is in force.
    pub const fn latency(&self) -> Span {
        self.latency
    }

    /// Returns the lowest limit that any program on this machine requests; `None` without requests.
    ///
    /// # Errors
    /// [`IdleLimitError`]; reading needs the same privilege.
    pub fn in_force() -> Result<Option<Span>, IdleLimitError> {
        let path = Path::new(DEVICE);
        let mut device = open(path, OpenOptions::new().read(true))?;
        let mut word = [0; 4];
        device
            .read_exact(&mut word)
            .map_err(|source| kernel("read", path, source))?;
        // Older kernels also accept negative values, although no latency is that low.
        let us = u64::try_from(i32::from_ne_bytes(word)).unwrap_or(0);
        let latency = Span::from_us(us);
        Ok((latency < NOBODY).then_some(latency))
    }

    fn hold_at(path: &Path, latency: Span) -> Result<IdleLimit, IdleLimitError> {
        let us = i32::try_from(latency.as_ns() / 1_000).ok();
        let Some(us) = us.filter(|_| latency < NOBODY) else {
            return Err(IdleLimitError::TooLong { latency });
        };
        let mut device = open(path, OpenOptions::new().write(true))?;
        // In a single write: four bytes are the number itself, any other count would be read as
        // text.
        loop {
            match device.write(&us.to_ne_bytes()) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(kernel("write", path, error)),
            }
        }
        Ok(IdleLimit {
            latency: Span::from_us(us.unsigned_abs().into()),
            _device: device,
        })
    }
}

fn open(path: &Path, options: &OpenOptions) -> Result<File, IdleLimitError> {
    let device = options.open(path).map_err(|source| refusal(path, source))?;
    // Root would create a regular file of that name where the device is missing.
    let found = device.metadata();
    let found = found.map_err(|source| kernel("inspect", path, source))?;
    match found.file_type().is_char_device() {
        true => Ok(device),
        false => Err(IdleLimitError::Absent { path: path.into() }),
    }
}

fn refusal(path: &Path, source: io::Error) -> IdleLimitError {
    match source.kind() {
        io::ErrorKind::NotFound => IdleLimitError::Absent { path: path.into() },
        io::ErrorKind::PermissionDenied => IdleLimitError::NotAllowed {
            path: path.into(),
            source,
        },
        _ => kernel("open", path, source),
    }
}

fn kernel(step: &'static str, path: &Path, source: io::Error) -> IdleLimitError {
    let path = path.into();
    IdleLimitError::Kernel { step, path, source }
}

const DEVICE: &str = "/dev/cpu_dma_latency";
/// The value in force without requests. Linux, include/linux/pm_qos.h:
/// PM_QOS_CPU_LATENCY_DEFAULT_VALUE.
const NOBODY: Span = Span::from_secs(2000);

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit so large that the test does not keep the machine from any idle state.
    const LONG: Span = Span::from_us(1_234_567);

    #[test]
    fn a_limit_is_in_force_while_it_is_held() {
        let before = match IdleLimit::in_force() {
            Ok(before) => before,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "CI has the privilege");
                eprintln!("NOT SHOWN: {error}");
                return;
            }
        };
        // Another program may request less, which is in force then.
        let least = |held: Span| Some(before.map_or(held, |before| before.min(held)));
        let in_force = || IdleLimit::in_force().unwrap();
        let limit = IdleLimit::hold(LONG).unwrap();
        assert_eq!(limit.latency(), LONG);
        assert_eq!(in_force(), least(LONG));
        let lower = IdleLimit::hold(LONG - Span::from_ns(1)).unwrap();
        assert_eq!(lower.latency(), LONG - Span::from_us(1));
        assert_eq!(in_force(), least(lower.latency()));
        drop(lower);
        assert_eq!(in_force(), least(LONG));
        drop(limit);
        assert_eq!(in_force(), before);
    }

    #[test]
    fn a_missing_device_is_reported_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cpu_dma_latency");
        let expected = format!(
            "cannot limit the idle states of cores: there is no device {}; the kernel needs CONFIG_CPU_IDLE, and a container must be given the device",
            path.display()
        );
        let error = IdleLimit::hold_at(&path, Span::ZERO).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(!path.exists(), "it is not made");
        // Nor is an ordinary file accepted instead.
        std::fs::write(&path, "0").unwrap();
        let error = IdleLimit::hold_at(&path, Span::ZERO).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(std::fs::read(&path).unwrap(), *b"0");
    }

    #[test]
    fn a_refusal_is_reported_with_a_remedy() {
        // EACCES: the file's permissions. EPERM: a container's list of devices.
        for (errno, answer) in [
            (libc::EACCES, "Permission denied (os error 13)"),
            (libc::EPERM, "Operation not permitted (os error 1)"),
        ] {
            let error = refusal(Path::new("/dev/x"), io::Error::from_raw_os_error(errno));
            let expected = format!(
                "cannot limit the idle states of cores: /dev/x: {answer}; run as root, or give a group of this user write access to the device; a container must be given the device too"
            );
            assert_eq!(error.to_string(), expected);
        }
        let folder = tempfile::tempdir().unwrap();
        let error = IdleLimit::hold_at(folder.path(), Span::ZERO).unwrap_err();
        assert!(error.to_string().starts_with("cannot open "), "{error}");
    }

    #[test]
    fn the_kernels_value_for_no_limit_is_none() {
        let path = Path::new("/nowhere");
        for latency in [Span::from_secs(2000), Span::MAX] {
            let error = IdleLimit::hold_at(path, latency).unwrap_err();
            assert!(matches!(error, IdleLimitError::TooLong { .. }), "{error}");
        }
        let longest = Span::from_secs(2000) - Span::from_ns(1);
        let error = IdleLimit::hold_at(path, longest).unwrap_err();
        assert!(matches!(error, IdleLimitError::Absent { .. }), "{error}");
    }
}
