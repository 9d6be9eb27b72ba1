//! Arguments of `sluice router` for packets of the kernel's own stack.

use crate::number::whole;
use sluice_router::process::{Hook, Hooked, IfDead, Mark, Traffic};

/// The packets of the kernel's own stack that are queued.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("hooks").multiple(true))]
pub struct HookArgs {
    /// Queue what this machine forwards, by NFQUEUE, instead of bridging ports: the kernel stays
    /// the router, with its routes and its firewall. Only packets that enter or leave by one of
    /// these interfaces, separated by commas [default: all]
    #[arg(long, value_name = "INTERFACES", num_args = 0..=1, value_delimiter = ',',
          conflicts_with = "ports", group = "hooks")]
    pub forward: Option<Vec<String>>,
    /// Queue what this machine itself sends and receives, by NFQUEUE, alone or together with
    /// `--forward`; on the interfaces of `--forward`, or on these [default: all but lo]
    #[arg(long, value_name = "INTERFACES", num_args = 0..=1, value_delimiter = ',',
          conflicts_with = "ports", group = "hooks")]
    local: Option<Vec<String>>,
    /// Queue only packets with this firewall mark, under this mask
    #[arg(long, value_name = "MARK[/MASK]", value_parser = parse_mark, requires = "hooks")]
    mark: Option<Mark>,
    /// What happens to these packets when the router dies: they pass unqueued (`bypass`), or they
    /// are dropped until it starts again (`closed`)
    #[arg(long, value_enum, default_value_t = FailWord::Bypass, requires = "hooks")]
    fail: FailWord,
    /// Number of the kernel's queue; each router needs its own. With several workers, they have this
    /// queue and the following ones. The nft table is called `sluice`, or `sluiceN` for queue N
    #[arg(long, value_name = "N", default_value_t = 0, requires = "hooks",
          value_parser = whole(0..=u16::MAX))]
    nfqueue: u16,
    /// Leave payloads in the kernel: faster for super-packets, but packets are dropped instead of
    /// marked
    #[arg(long, requires = "hooks")]
    headers_only: bool,
}

/// The fate of packets when the router has died.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FailWord {
    /// They pass unqueued
    Bypass,
    /// They are dropped until the router starts again
    Closed,
}

impl HookArgs {
    /// Returns what is queued; `None` if the router has ports instead.
    ///
    /// # Errors
    /// `--forward` and `--local` name different interfaces.
    pub fn hooked(&self) -> Result<Option<Hooked>, String> {
        let interfaces = match (&self.forward, &self.local) {
            (None, None) => return Ok(None),
            (Some(of_forward), Some(of_local))
                if !of_forward.is_empty() && !of_local.is_empty() && of_forward != of_local =>
            {
                return Err(
                    "`--forward` and `--local` name different interfaces: name them once"
                        .to_owned(),
                );
            }
            (of_forward, of_local) => {
                let mut named = [of_forward, of_local].into_iter().flatten();
                named
                    .rfind(|names| !names.is_empty())
                    .cloned()
                    .unwrap_or_default()
            }
        };
        let of_forward = self.forward.as_ref().map(|_| vec![Hook::Forward]);
        let of_local = self.local.as_ref().map(|_| vec![Hook::Input, Hook::Output]);
        Ok(Some(Hooked {
            traffic: Traffic {
                hooks: of_forward.into_iter().chain(of_local).flatten().collect(),
                entering: interfaces.clone(),
                leaving: interfaces,
                mark: self.mark,
            },
            queue: self.nfqueue,
            if_dead: match self.fail {
                FailWord::Bypass => IfDead::Bypass,
                FailWord::Closed => IfDead::Closed,
            },
            headers_only: self.headers_only,
        }))
    }
}

/// Describes what is queued.
pub fn describe(hooked: &Hooked) -> String {
    let forwards = hooked.traffic.hooks.contains(&Hook::Forward);
    let is_local = hooked.traffic.hooks.contains(&Hook::Output);
    let what = match (forwards, is_local) {
        (true, true) => "what this machine forwards, sends and receives",
        (true, false) => "what this machine forwards",
        (false, _) => "what this machine sends and receives",
    };
    match hooked.traffic.interfaces().as_slice() {
        [] => what.to_owned(),
        names => format!("{what} by {}", names.join(", ")),
    }
}

fn parse_mark(text: &str) -> Result<Mark, String> {
    let number = |text: &str| {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.map_err(|_| {
            format!("`{text}` is not a number of 32 bits: expected one such as 7 or 0xff")
        })
    };
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (number(value)?, number(mask)?),
        None => (number(text)?, u32::MAX),
    };
    if value & !mask != 0 {
        return Err(format!(
            "mark {value:#x} has bits outside its mask {mask:#x}, so no packet has it"
        ));
    }
    Ok(Mark { value, mask })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_with_their_masks() {
        let mark = |value, mask| Ok(Mark { value, mask });
        assert_eq!(parse_mark("7"), mark(7, u32::MAX));
        assert_eq!(parse_mark("0x10/0xf0"), mark(0x10, 0xf0));
        assert!(
            parse_mark("0x1f/0xf0")
                .unwrap_err()
                .contains("outside its mask")
        );
        assert!(parse_mark("seven").unwrap_err().contains("`seven`"));
    }
}
