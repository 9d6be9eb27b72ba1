//! `mask SPEC`: the fields that create dynamic pipes and queues.

use std::fmt;

use crate::flow::{FLOW_LABEL_BITS, Mask};
use crate::words::error::{CommandError, ErrorKind};
use crate::words::parser::{Parse, Parser, invalid, refused};
use crate::words::quantity::whole_integer;
use crate::words::token::At;

/// The words of a mask.
const FIELDS: &[&str] = &[
    "all", "queue", "proto", "src-ip", "dst-ip", "src-port", "dst-port", "src-ip6", "src-ipv6",
    "dst-ip6", "dst-ipv6", "flow-id",
];

/// Reads a mask up to the first word that is not a field.
pub(super) fn mask(p: &mut Parser<'_>) -> Parse<Mask> {
    let mut mask = Mask::default();
    let first = p.need("mask needs mask specifier")?;
    if !FIELDS.contains(&first.value) {
        let kind = ErrorKind::Unrecognised(first.value.to_string());
        return Err(CommandError::new(kind, first.at).near(first.value, FIELDS.iter().copied()));
    }
    let mut field = first;
    loop {
        match field.value {
            "all" => {
                return Ok(Mask {
                    queue: mask.queue,
                    ..Mask::ALL
                });
            }
            "queue" => {
                return Ok(Mask {
                    queue: true,
                    ..mask
                });
            }
            _ => {}
        }
        let value = p.need("mask: value missing")?;
        match field.value {
            "proto" => mask.proto = bits(p, value, 8, "proto mask must be 8 bit")? as u8,
            "src-ip" => mask.src = address_bits(p, value)?,
            "dst-ip" => mask.dst = address_bits(p, value)?,
            "src-port" => mask.src_port = bits(p, value, 16, "port mask must be 16 bit")? as u16,
            "dst-port" => mask.dst_port = bits(p, value, 16, "port mask must be 16 bit")? as u16,
            "flow-id" => mask.flow_label = bits(p, value, 20, "flow_id mask must be 20 bit")?,
            "src-ip6" | "src-ipv6" => mask.src_v6_len = prefix(value)?,
            _ => mask.dst_v6_len = prefix(value)?,
        }
        match p.peek() {
            Some(word) if FIELDS.contains(&word) => {
                // `queue` followed by a size is the option of the object, not a field of the mask.
                let is_size = word == "queue"
                    && p.peek_at(1)
                        .is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()));
                if is_size {
                    return Ok(mask);
                }
                field = p.take().expect("the word was just seen");
            }
            _ => return Ok(mask),
        }
    }
}

/// Reads a number, or `/n` for the low n bits.
fn bits(p: &mut Parser<'_>, word: At<&str>, width: u32, too_wide: &'static str) -> Parse<u32> {
    let value = if let Some(len) = word.value.strip_prefix('/') {
        let len = whole_integer(len)
            .filter(|n| *n <= 32)
            .ok_or_else(|| invalid(word, "a mask", "/0 to /32"))? as u32;
        let low = ((1u64 << len) - 1) as u32;
        if width == 32 && len > 0 && len < 32 {
            p.warn(
                word.at,
                format!(
                    "`{}` masks the low {len} bits (0x{low:08x}), not a network prefix",
                    word.value
                ),
            );
        }
        u128::from(low)
    } else {
        whole_integer(word.value).ok_or_else(|| {
            invalid(
                word,
                "a mask",
                "a number such as 0xffff, or /n for n low bits",
            )
        })?
    };
    if value >> width != 0 {
        return Err(refused(too_wide, word.at));
    }
    Ok(value as u32)
}

fn address_bits(p: &mut Parser<'_>, word: At<&str>) -> Parse<u32> {
    bits(p, word, 32, "address mask must be 32 bit")
}

/// Reads the prefix length of an IPv6 mask, with or without a slash.
fn prefix(word: At<&str>) -> Parse<u8> {
    let digits = word.value.strip_prefix('/').unwrap_or(word.value);
    match whole_integer(digits) {
        Some(len) if len <= 128 => Ok(len as u8),
        Some(_) => Err(refused("in6addr invalid mask len", word.at)),
        None => Err(invalid(word, "a prefix length", "0 to 128")),
    }
}

impl fmt::Display for Mask {
    /// Writes the words behind `mask`; nothing for an empty mask.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Mask::ALL {
            return f.write_str("all");
        }
        let mut separator = "";
        let mut put = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            write!(f, "{separator}{text}")?;
            separator = " ";
            Ok::<(), fmt::Error>(())
        };
        if self.is_empty() {
            return put(f, format_args!("proto 0x00"));
        }
        if self.proto != 0 {
            put(f, format_args!("proto 0x{:02x}", self.proto))?;
        }
        if self.src != 0 {
            put(f, format_args!("src-ip 0x{:08x}", self.src))?;
        }
        if self.src_port != 0 {
            put(f, format_args!("src-port 0x{:04x}", self.src_port))?;
        }
        if self.dst != 0 {
            put(f, format_args!("dst-ip 0x{:08x}", self.dst))?;
        }
        if self.dst_port != 0 {
            put(f, format_args!("dst-port 0x{:04x}", self.dst_port))?;
        }
        if self.src_v6_len != 0 {
            put(f, format_args!("src-ip6 {}", self.src_v6_len))?;
        }
        if self.dst_v6_len != 0 {
            put(f, format_args!("dst-ip6 {}", self.dst_v6_len))?;
        }
        if self.flow_label != 0 {
            put(
                f,
                format_args!("flow-id 0x{:05x}", self.flow_label & FLOW_LABEL_BITS),
            )?;
        }
        if self.queue {
            put(f, format_args!("queue"))?;
        }
        Ok(())
    }
}
