/**
 * Packed columns of whole numbers. Each number is stored as the difference from its predecessor,
 * zigzag coded (0, -1, 1, -2 ... become 0, 1, 2, 3 ...), in groups of five bits, the lowest first.
 * Each group is a character of base64 (RFC 4648 section 4), whose sixth bit says "more follows".
 * Exact for differences below 2^52 (52 days in ns).
 */
import type { Packets } from "./model.ts";

const MORE = 32;
const CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/** The group of each character, by its code; 255 for others. */
const GROUPS = new Uint8Array(128).fill(255);
for (let group = 0; group < CHARACTERS.length; group += 1) GROUPS[CHARACTERS.charCodeAt(group)] = group;

/** The unpacked columns of `Packets`. */
export type Columns = Record<
  "at_ns" | "sojourn_ns" | "size_bytes" | "flow" | "verdict" | "reason" | "number",
  Float64Array
>;

const unpacked = new WeakMap<Packets, Columns>();

/** Unpacks the columns of packets, once. */
export function columnsOf(packets: Packets): Columns {
  const known = unpacked.get(packets);
  if (known !== undefined) return known;
  const columns: Columns = {
    at_ns: unpack(packets.at_ns),
    sojourn_ns: unpack(packets.sojourn_ns),
    size_bytes: unpack(packets.size_bytes),
    flow: unpack(packets.flow),
    verdict: unpack(packets.verdict),
    reason: unpack(packets.reason),
    number: unpack(packets.number),
  };
  unpacked.set(packets, columns);
  return columns;
}

export function unpack(packed: string): Float64Array {
  const groups = new Uint8Array(packed.length);
  let length = 0;
  for (let at = 0; at < groups.length; at += 1) {
    const group = GROUPS[packed.charCodeAt(at)] ?? 255;
    if (group >= 2 * MORE) throw new Error("packed column has a character that is not of base64");
    groups[at] = group;
    if (group < MORE) length += 1;
  }
  const column = new Float64Array(length);
  let at = 0;
  let previous = 0;
  // Multiplied instead of shifted, because a difference may have more than 32 bits.
  let zigzag = 0;
  let scale = 1;
  for (const group of groups) {
    zigzag += (group % MORE) * scale;
    scale *= MORE;
    if (group >= MORE) continue;
    previous += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    column[at] = previous;
    at += 1;
    zigzag = 0;
    scale = 1;
  }
  if (scale !== 1) throw new Error("packed column ends within a number");
  return column;
}

export function pack(column: ArrayLike<number>): string {
  const characters: string[] = [];
  let previous = 0;
  for (let at = 0; at < column.length; at += 1) {
    const value = column[at] ?? 0;
    const difference = value - previous;
    previous = value;
    let zigzag = difference >= 0 ? 2 * difference : -2 * difference - 1;
    while (zigzag >= MORE) {
      characters.push(CHARACTERS.charAt((zigzag % MORE) + MORE));
      zigzag = Math.floor(zigzag / MORE);
    }
    characters.push(CHARACTERS.charAt(zigzag));
  }
  return characters.join("");
}

export function fromBase64(encoded: string): Uint8Array<ArrayBuffer> {
  const binary = atob(encoded);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

export function toBase64(bytes: Uint8Array): string {
  // In pieces, because the argument list of `fromCharCode` is limited.
  const pieces: string[] = [];
  for (let at = 0; at < bytes.length; at += 0x8000) {
    pieces.push(String.fromCharCode(...bytes.subarray(at, at + 0x8000)));
  }
  return btoa(pieces.join(""));
}
