import { createHmac } from 'node:crypto'
import bcrypt from 'bcrypt'
import { errors } from '../errors.ts'

const scheme = 'b1:'
/** libuv has four threads; half of them stay free for files, DNS and TLS while hashes are computed. */
const concurrent = 2
/** The last in line waits a second or two; who came later would have left. */
const waitingAtMost = 50

/**
 * bcrypt over a keyed pre-hash: bcrypt alone reads 72 bytes and stops at a NUL, so longer passwords would be cut.
 * The stored form starts with a scheme tag, so that another one can follow. `cost` is bcrypt's: one more doubles the time.
 * 503 when too many hashes are waiting.
 */
export async function hashPassword(password: string, cost: number): Promise<string> {
  return scheme + (await inTurn(() => bcrypt.hash(preHash(password), cost)))
}

/**
 * Compares in the time of one hash, also when there is none to compare with: an unknown account must not answer faster.
 * `cost` is that of the accounts there are.
 */
export async function verifyPassword(
  password: string,
  stored: string | null | undefined,
  cost: number,
): Promise<boolean> {
  const known = stored?.startsWith(scheme) === true
  const hash = known ? stored.slice(scheme.length) : await nobody(cost)
  const matches = await inTurn(() => bcrypt.compare(preHash(password), hash))
  return matches && known
}

/** 48 bytes are 64 base64 characters: no NUL, all of them read by bcrypt. The key only separates domains. */
function preHash(password: string): string {
  return createHmac('sha384', 'daybook password').update(password, 'utf8').digest('base64')
}

const nobodies = new Map<number, Promise<string>>()

function nobody(cost: number): Promise<string> {
  const hash = nobodies.get(cost) ?? bcrypt.hash(preHash('nobody has this password'), cost)
  nobodies.set(cost, hash)
  return hash
}

let running = 0
const waiting: (() => void)[] = []

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (running < concurrent) running += 1
  else if (waiting.length >= waitingAtMost) throw errors.unavailable('Too many sign-in attempts at once')
  else await new Promise<void>((resolve) => waiting.push(resolve))
  try {
    return await work()
  } finally {
    const next = waiting.shift()
    // The slot goes on to the next in line, so nobody can slip in between.
    if (next === undefined) running -= 1
    else next()
  }
}
