/** Small checked readers for JSON: each returns the value with its type, or throws with its path. */
import { unpack } from "./packed.ts";

export type Decoder<T> = (json: unknown, path: string) => T;

/** The JSON is not what the contract says. */
export class DecodeError extends Error {}

function refuse(path: string, wanted: string, json: unknown): never {
  const found = json === undefined ? "nothing" : (JSON.stringify(json) ?? String(json)).slice(0, 60);
  throw new DecodeError(`${path}: expected ${wanted}, found ${found}`);
}

export const text: Decoder<string> = (json, path) =>
  typeof json === "string" ? json : refuse(path, "a string", json);

export const num: Decoder<number> = (json, path) =>
  typeof json === "number" ? json : refuse(path, "a number", json);

export const int: Decoder<number> = (json, path) =>
  Number.isSafeInteger(json) ? (json as number) : refuse(path, "a whole number", json);

export const packedColumn: Decoder<Float64Array> = (json, path) => {
  const packed = text(json, path);
  try {
    return unpack(packed);
  } catch (error) {
    throw new DecodeError(`${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
};

export function literal<T extends number>(wanted: T): Decoder<T> {
  return (json, path) => (json === wanted ? wanted : refuse(path, String(wanted), json));
}

export function oneOf<T extends string>(...words: T[]): Decoder<T> {
  return (json, path) => words.find((word) => word === json) ?? refuse(path, words.join(" or "), json);
}

export function nullable<T>(inner: Decoder<T>): Decoder<T | null> {
  return (json, path) => (json === null ? null : inner(json, path));
}

export function list<T>(inner: Decoder<T>): Decoder<T[]> {
  return (json, path) =>
    Array.isArray(json)
      ? json.map((item, at) => inner(item, `${path}[${at}]`))
      : refuse(path, "a list", json);
}

/** Exactly the given keys: a missing or unknown one is an error. */
export function object<T extends object>(keys: { [K in keyof T]: Decoder<T[K]> }): Decoder<T> {
  const names = Object.keys(keys) as (keyof T & string)[];
  return (json, path) => {
    if (typeof json !== "object" || json === null || Array.isArray(json))
      return refuse(path, "an object", json);
    const source = json as Record<string, unknown>;
    for (const name of Object.keys(source)) {
      if (!(name in keys)) throw new DecodeError(`${path}.${name}: unknown key`);
    }
    const made: Partial<T> = {};
    for (const name of names) made[name] = keys[name](source[name], `${path}.${name}`);
    return made as T;
  };
}
