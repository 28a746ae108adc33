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
 * Compares in the time of one hash, also when there is none to compare with: an unknown account must not answer faster, and
 * neither must one whose hash is cheaper. `cost` is that of the accounts there are.
 */
export async function verifyPassword(
  password: string,
  stored: string | null | undefined,
  cost: number,
): Promise<boolean> {
  const held = heldHash(stored)
  const compared = held ?? { hash: await nobody(cost), cost, isOwn: true }
  const text = preHash(password)
  const fillers = await Promise.all(costsBetween(compared.cost, cost).map(nobody))
  const matches = await inTurn(async () => {
    const matches = await bcrypt().compare(compared.isOwn ? text : password, compared.hash)
    for (const filler of fillers) await bcrypt().compare(text, filler)
    return matches
  })
  return matches && held !== undefined
}

/** Whether a text that is given as a password is the hash of one, of whatever scheme. */
export function isPasswordHash(text: string): boolean {
  return [ownForm, modularForm, djangoForm, ldapForm].some((form) => form.test(text))
}

/** The hashes that {@link takesOver} accepts, in words. */
export const hashesTakenOver = 'Hashes of bcrypt ($2a$, $2b$, $2y$) with a cost from 4 to 14 can be taken over'

/** Whether {@link verifyPassword} can verify the hash: one of ours, or one that another product made with bcrypt. */
export const takesOver = (hash: string): boolean => heldHash(hash) !== undefined

/** Whether the hash of another product is stored, which the next sign-in replaces with one of ours. */
export const isReplaceable = (stored: string): boolean => heldHash(stored)?.isOwn === false

const bcryptForm = /^\$2[aby]\$(\d\d)\$([./A-Za-z0-9]{53})$/
/** Higher costs would hold up all other sign-ins. */
const [leastCost, greatestCost] = [4, 14]
/** Of ours, PASSWORD_HASH_COST decided. */
const greatestOwnCost = 16

const ownForm = /^b1:\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}$/
/** `$2x$…`, `$argon2id$…`, `$6$…`, `$P$…`: a scheme, and salt and hash in the alphabet of such forms. */
const modularForm =
  /^\$(2[a-z]?|1|5|6|7|y|gy|P|H|S|apr1|md5|sha1|scrypt|argon2(i|d|id)|bcrypt[\w-]*|pbkdf2[\w-]*)\$[\w./+=,$:-]{20,}$/
const djangoForm = /^(pbkdf2_\w+|argon2|scrypt|bcrypt\w*)\$[\w./+=,$-]{20,}$/
const ldapForm = /^\{(S?SHA\d*|S?MD5|CRYPT|bcrypt|pbkdf2|scrypt|argon2)\}[\w./+=,$-]{20,}$/i

type HeldHash = { readonly hash: string; readonly cost: number; readonly isOwn: boolean }

function heldHash(stored: string | null | undefined): HeldHash | undefined {
  const isOwn = stored?.startsWith(scheme) === true
  const [, digits, rest] = bcryptForm.exec(isOwn ? stored.slice(scheme.length) : (stored ?? '')) ?? []
  const cost = Number(digits)
  if (rest === undefined || cost < leastCost || cost > (isOwn ? greatestOwnCost : greatestCost)) return undefined
  // The package knows no `$2y$`, and in `$2a$` copies a fault of old systems with passwords of 255 bytes.
  return { hash: `$2b$${digits}$${rest}`, cost, isOwn }
}

/** The costs whose hashes take, together with one of the lower cost, as long as one of the higher. */
const costsBetween = (lower: number, higher: number): readonly number[] =>
  Array.from({ length: Math.max(0, higher - lower) }, (_, more) => lower + more)

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
