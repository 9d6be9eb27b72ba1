//! Finds the end of a request's body (RFC 9112 section 6.3).

/// The length of a request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// This number of bytes.
    Length(u64),
    /// In chunks.
    Chunks(Chunks),
    /// Everything up to the end of the connection.
    Endless,
}

/// The position in a body of chunks (RFC 9112 section 7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// In the line with a chunk's size.
    Size {
        /// The value of the digits read so far.
        size: u64,
        /// The number of digits read.
        digits: u8,
        /// Whether the digits have ended, and an extension is skipped.
        is_past: bool,
    },
    /// In a chunk. This number of bytes is left, including the line break after the chunk.
    Data(u64),
    /// In the lines after the last chunk. True at the start of a line.
    Trailer(bool),
    /// After the body.
    Ended,
}

/// The body does not have the form that its head announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl Body {
    /// Returns the number of bytes of `input` that belong to the body.
    ///
    /// # Errors
    /// `Broken` if the chunks are malformed.
    pub fn pass(&mut self, input: &[u8]) -> Result<usize, Broken> {
        match self {
            Body::Endless => Ok(input.len()),
            Body::Length(left) => {
                let used = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= used as u64;
                Ok(used)
            }
            Body::Chunks(chunks) => chunks.pass(input),
        }
    }

    /// Returns whether the body is complete.
    pub fn has_ended(&self) -> bool {
        matches!(self, Body::Length(0) | Body::Chunks(Chunks::Ended))
    }
}

impl Chunks {
    /// Returns the initial state for a body.
    pub const fn new() -> Chunks {
        Chunks::Size {
            size: 0,
            digits: 0,
            is_past: false,
        }
    }

    fn pass(&mut self, input: &[u8]) -> Result<usize, Broken> {
        let mut at = 0;
        while at < input.len() && *self != Chunks::Ended {
            let byte = input[at];
            match self {
                Chunks::Size {
                    size,
                    digits,
                    is_past,
                } => {
                    at += 1;
                    match (byte as char).to_digit(16) {
                        // 15 digits are 2^60 - 1.
                        Some(digit) if !*is_past && *digits < 15 => {
                            *size = *size << 4 | u64::from(digit);
                            *digits += 1;
                        }
                        _ if *digits == 0 => return Err(Broken),
                        _ if byte == b'\n' => {
                            *self = match *size {
                                0 => Chunks::Trailer(true),
                                size => Chunks::Data(size + 2),
                            }
                        }
                        Some(_) if !*is_past => return Err(Broken),
                        _ if !*is_past && !matches!(byte, b'\r' | b';' | b' ' | b'\t') => {
                            return Err(Broken);
                        }
                        _ => *is_past = true,
                    }
                }
                Chunks::Data(left) => {
                    let rest = (input.len() - at) as u64;
                    let used = rest.min(*left);
                    at += used as usize;
                    *left -= used;
                    if *left == 0 {
                        *self = Chunks::new();
                    }
                }
                Chunks::Trailer(is_start) => {
                    at += 1;
                    match byte {
                        b'\n' if *is_start => *self = Chunks::Ended,
                        b'\n' => *is_start = true,
                        b'\r' => {}
                        _ => *is_start = false,
                    }
                }
                Chunks::Ended => {}
            }
        }
        Ok(at)
    }
}

impl Default for Chunks {
    fn default() -> Self {
        Chunks::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_ends_after_so_many_bytes() {
        let mut body = Body::Length(5);
        assert_eq!(body.pass(b"abc"), Ok(3));
        assert!(!body.has_ended());
        assert_eq!(body.pass(b"defg"), Ok(2));
        assert!(body.has_ended());
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for text in ["\r\n", "x\r\n", "1g\r\n", "-1\r\n", "1000000000000000\r\n"] {
            let mut body = Body::Chunks(Chunks::new());
            assert_eq!(body.pass(text.as_bytes()), Err(Broken), "{text}");
        }
    }

    proptest! {
        /// A body of chunks ends at the same byte, however the input is cut.
        #[test]
        fn chunks_end_where_they_end(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..5),
            has_trailer: bool,
            cuts in prop::collection::vec(1_usize..20, 1..50),
        ) {
            let mut text = Vec::new();
            for chunk in &chunks {
                text.extend(format!("{:X};name=value\r\n", chunk.len()).as_bytes());
                text.extend(chunk);
                text.extend(b"\r\n");
            }
            text.extend(b"0\r\n");
            if has_trailer {
                text.extend(b"Name: value\r\n");
            }
            text.extend(b"\r\n");
            let end = text.len();
            text.extend(b"GET / HTTP/1.1\r\n");
            let (mut body, mut at) = (Body::Chunks(Chunks::new()), 0);
            let mut cuts = cuts.iter().cycle();
            while !body.has_ended() {
                prop_assert!(at < end);
                let to = (at + cuts.next().unwrap()).min(text.len());
                at += body.pass(&text[at..to]).unwrap();
            }
            prop_assert_eq!(at, end);
        }
    }
}
