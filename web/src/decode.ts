/** Small checked readers for JSON: each returns the value with its type, or says what is wrong and where. */
import { unpack } from "./packed.ts";

export type Decoder<T> = (json: unknown) => T;

/** The JSON is not what the contract says. The path grows while the error passes outwards. */
export class DecodeError extends Error {
  private path = "";

  constructor(private readonly reason: string) {
    super(reason);
  }

  at(step: string): this {
    this.path = step + this.path;
    this.message = `${this.path}: ${this.reason}`;
    return this;
  }
}

function refuse(wanted: string, json: unknown): never {
  const found = json === undefined ? "nothing" : JSON.stringify(json).slice(0, 60);
  throw new DecodeError(`expected ${wanted}, found ${found}`);
}

/** Reads a part, and names the step to it when that fails. */
export function within<T>(step: () => string, inner: Decoder<T>, json: unknown): T {
  try {
    return inner(json);
  } catch (error) {
    throw error instanceof DecodeError ? error.at(step()) : error;
  }
}

export const text: Decoder<string> = (json) => (typeof json === "string" ? json : refuse("a string", json));

export const num: Decoder<number> = (json) => (typeof json === "number" ? json : refuse("a number", json));

export const flag: Decoder<boolean> = (json) =>
  typeof json === "boolean" ? json : refuse("true or false", json);

export const int: Decoder<number> = (json) =>
  Number.isSafeInteger(json) ? (json as number) : refuse("a whole number", json);

export const packedColumn: Decoder<Float64Array> = (json) => {
  const packed = text(json);
  try {
    return unpack(packed);
  } catch (error) {
    throw new DecodeError(error instanceof Error ? error.message : String(error));
  }
};

export function literal<T extends number>(wanted: T): Decoder<T> {
  return (json) => (json === wanted ? wanted : refuse(String(wanted), json));
}

export function oneOf<T extends string>(...words: T[]): Decoder<T> {
  return (json) => words.find((word) => word === json) ?? refuse(words.join(" or "), json);
}

export function nullable<T>(inner: Decoder<T>): Decoder<T | null> {
  return (json) => (json === null ? null : inner(json));
}

export function list<T>(inner: Decoder<T>): Decoder<T[]> {
  return (json) =>
    Array.isArray(json)
      ? json.map((item, at) => within(() => `[${at}]`, inner, item))
      : refuse("a list", json);
}

/** Exactly the given keys: a missing or unknown one is an error. */
export function object<T extends object>(keys: { [K in keyof T]: Decoder<T[K]> }): Decoder<T> {
  const names = Object.keys(keys) as (keyof T & string)[];
  return (json) => {
    if (typeof json !== "object" || json === null || Array.isArray(json)) return refuse("an object", json);
    const source = json as Record<string, unknown>;
    for (const name of Object.keys(source)) {
      if (!Object.hasOwn(keys, name)) throw new DecodeError("unknown key").at(`.${name}`);
    }
    const made: Partial<T> = {};
    for (const name of names) made[name] = within(() => `.${name}`, keys[name], source[name]);
    return made as T;
  };
}
