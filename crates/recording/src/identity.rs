//! The identity of a program's file, by which runs of the same program are recognised.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use elf::ElfStream;
use elf::endian::AnyEndian;
use elf::note::Note;

use super::checksum::{Checksum, hex};

/// The library that is the program, if there is one.
static LIBRARY: OnceLock<PathBuf> = OnceLock::new();

/// Lets the library at `path` be the program, because the file of the process is only an interpreter. Call
/// this before [`program()`]; the first call counts.
pub fn set_program(path: PathBuf) {
    let _ = LIBRARY.set(path);
}

/// Returns the identity of the running program's file, which changes with every change of its code;
/// `None` if the system does not give access to the file.
pub fn program() -> Option<&'static str> {
    static PROGRAM: OnceLock<Option<String>> = OnceLock::new();
    let of_this = || {
        let file = LIBRARY
            .get()
            .map_or(Path::new("/proc/self/exe"), PathBuf::as_path);
        identity_of(file).ok()
    };
    PROGRAM.get_or_init(of_this).as_deref()
}

/// Returns the identity of the program or library at `path`: its build ID, which the linker makes
/// from the content (`readelf -n` prints it), or its SHA-256 if it has none. A file with debugging
/// information has 100 MB and more, so its SHA-256 would take longer than many a run.
///
/// # Errors
/// The file cannot be read.
pub fn identity_of(path: &Path) -> io::Result<String> {
    match build_id(path) {
        Some(id) => Ok(id),
        None => Ok(Checksum::of_file(path)?.sha256),
    }
}

/// Returns the build ID of an ELF file in hexadecimal; `None` if the file has none.
fn build_id(path: &Path) -> Option<String> {
    let mut elf = ElfStream::<AnyEndian, _>::open_stream(File::open(path).ok()?).ok()?;
    let section = *elf.section_header_by_name(".note.gnu.build-id").ok()??;
    let mut notes = elf.section_data_as_notes(&section).ok()?;
    notes.find_map(|note| match note {
        Note::GnuBuildId(id) => Some(hex(id.0)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs;

    /// A file in the ELF format (System V gABI, chapter 4; 64 bits, little-endian) with two
    /// sections: the note of the build ID `id`, and the names of the sections.
    fn elf_with(id: &[u8]) -> Vec<u8> {
        let note = [
            &4_u32.to_le_bytes()[..],
            &u32::try_from(id.len()).unwrap().to_le_bytes(),
            // NT_GNU_BUILD_ID
            &3_u32.to_le_bytes(),
            b"GNU\0",
            id,
        ]
        .concat();
        let names = b"\0.note.gnu.build-id\0.shstrtab\0";
        let (header, section) = (64, 64);
        let note_at = header + 3 * section;
        let names_at = note_at + note.len();
        let row = |name: u32, kind: u32, at: usize, size: usize| {
            let (at, size) = (at as u64, size as u64);
            let mut row = Vec::new();
            row.extend([name, kind].iter().flat_map(|word| word.to_le_bytes()));
            row.extend([0, 0, at, size].iter().flat_map(|word| word.to_le_bytes()));
            row.extend([0_u32; 2].iter().flat_map(|word| word.to_le_bytes()));
            row.extend([4_u64, 0].iter().flat_map(|word| word.to_le_bytes()));
            row
        };
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
        file.resize(16, 0);
        // An executable for x86-64.
        file.extend([2_u16, 62].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(1_u32.to_le_bytes());
        file.extend([0, 0, 64_u64].iter().flat_map(|word| word.to_le_bytes()));
        file.extend(0_u32.to_le_bytes());
        let sizes = [64_u16, 0, 0, 64, 3, 2];
        file.extend(sizes.iter().flat_map(|word| word.to_le_bytes()));
        file.extend(row(0, 0, 0, 0));
        file.extend(row(1, 7, note_at, note.len()));
        file.extend(row(20, 3, names_at, names.len()));
        file.extend(note);
        file.extend(names);
        file
    }

    #[test]
    fn a_program_is_known_by_its_build_id_or_else_by_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let id = [0xab, 0xcd, 0x01, 0x02];
        fs::write(&path, elf_with(&id)).unwrap();
        assert_eq!(identity_of(&path).unwrap(), "abcd0102");

        // FIPS 180-2 appendix B.1: the digest of "abc".
        fs::write(&path, b"abc").unwrap();
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(identity_of(&path).unwrap(), sha256);

        // A file that ends within its headers is no ELF file.
        let cut = &elf_with(&id)[..100];
        fs::write(&path, cut).unwrap();
        let whole = Checksum::of_file(&path).unwrap().sha256;
        assert_eq!(identity_of(&path).unwrap(), whole);
    }

    #[test]
    fn the_running_program_has_an_identity() {
        let here = program().unwrap();
        assert!(here.len() >= 16, "{here}");
        assert!(here.bytes().all(|digit| digit.is_ascii_hexdigit()));
    }
}
