import { createHmac } from 'node:crypto'
import { availableParallelism } from 'node:os'
import { asker } from '../admission/asker.ts'
import { admitted, openLane, rushNow } from '../admission/lane.ts'
import { hashesAtOnce, patienceOfHashes } from '../admission/step.ts'
import { onFirstUse } from '../language/once.ts'

const bcrypt = onFirstUse<typeof import('bcrypt')>('bcrypt')

const scheme = 'b1:'

const oneHash = { shape: 'hash', presumed: 'heavy' } as const

/** Rejects who would be refused a hash now, before anything is done for the request. */
export function turnAwayFromHash(caller: string): Promise<void> | undefined {
  return hashing.turnAway(oneHash, caller)
}

/** The hashes of this process: one too many is refused, 503 `OVERLOADED`, before a guess has cost anything. */
export const hashing = openLane({
  places: () => {
    const atOnce = hashesAtOnce(availableParallelism(), rushNow())
    return { all: atOnce, heavy: atOnce, quick: atOnce }
  },
  patience: patienceOfHashes,
  refusal: 'Too many sign-in attempts at once',
})

/**
 * bcrypt over a keyed pre-hash: bcrypt alone reads 72 bytes and stops at a NUL, so longer passwords would be cut.
 * The stored form starts with a scheme tag, so that another one can follow. `cost` is bcrypt's: one more doubles the time.
 * 503 when too many hashes are waiting.
 */
export async function hashPassword(password: string, cost: number): Promise<string> {
  return scheme + (await inTurn(() => bcrypt().hash(preHash(password), cost)))
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
  const matches = await inTurn(() => bcrypt().compare(preHash(password), hash))
  return matches && known
}

/** 48 bytes are 64 base64 characters: no NUL, all of them read by bcrypt. The key only separates domains. */
function preHash(password: string): string {
  return createHmac('sha384', 'daybook password').update(password, 'utf8').digest('base64')
}

const nobodies = new Map<number, Promise<string>>()

function nobody(cost: number): Promise<string> {
  const hash = nobodies.get(cost) ?? bcrypt().hash(preHash('nobody has this password'), cost)
  nobodies.set(cost, hash)
  return hash
}

/**
 * Runs work that computes a hash when its turn comes. Reads for the hash belong inside: otherwise a flood would queue
 * for the database before anything refuses it. 503 when too many hashes are waiting.
 */
export function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const isPatient = asker() === undefined
  return admitted(hashing, { ...oneHash, isPatient }, work)
}
