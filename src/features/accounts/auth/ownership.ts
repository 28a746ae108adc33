import type { FastifyRequest } from 'fastify'
import { clientNetwork } from '../../../adapters/client-address.ts'
import { presentedSecret } from '../../../adapters/one-time-secrets.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Tx } from '../../../db/sql.ts'
import { deleteChallengesOf } from '../../../db/unlogged/challenges.ts'
import {
  type CodeOutcome,
  type Consumption,
  consumeCode,
  consumeSecret,
  deleteSecrets,
} from '../../../db/unlogged/secrets.ts'
import { deleteOtherSessions } from '../../../db/unlogged/sessions.ts'
import type { AppError } from '../../../errors.ts'
import type { DomainEvent } from '../../../events/types.ts'
import { type SecretPurpose, secretIdentifier } from '../../messaging/mail/mail.ts'
import { decideOwnership, decideRedemption } from './decisions.ts'
import { type Account, dropCredentials, findAccount, lockHolder, verifyWithoutPassword } from './queries.ts'

type Presented = {
  readonly purpose: SecretPurpose
  /** A token or code, as it was followed or typed. */
  readonly typed: string
  /** Whose it is said to be. */
  readonly email: string | undefined
}

/** What came of it, and the facts to append: commit both, then throw `refusal`. */
export type Redeemed =
  | (ProvenAccount & { readonly refusal?: undefined })
  | { readonly refusal: AppError; readonly events: readonly DomainEvent[] }

/**
 * Uses up the one-time secret of a mail and gives the account whose address it was sent to. A refusal is a value, not an
 * exception, because the transaction must be committed with it: the try of a code counts, whatever comes of it.
 */
export async function redeem(
  rt: Configuration,
  tx: Tx,
  request: FastifyRequest,
  presented: Presented,
  refused: { readonly message: string; readonly event: 'auth.magic_link_failed' | 'auth.password_reset_failed' },
): Promise<Redeemed> {
  const { purpose, typed, email } = presented
  const { form, hash } = presentedSecret(rt.config, purpose, typed)
  const holder = await lockHolder(tx, purpose, hash)
  const wanted = { purpose, hash, email }
  const outcome =
    form === 'token'
      ? await consumeToken(tx, wanted)
      : await consumeCode(tx, { ...wanted, client: clientNetwork(request.ip) })
  const decided = decideRedemption(outcome, holder, refused.message)
  if (decided.refusal === undefined) return proveOwnership(tx, decided.holder)
  if (!decided.failed) return { refusal: decided.refusal, events: [] }
  const said = email === undefined ? undefined : await findAccount(tx, email)
  return {
    refusal: decided.refusal,
    events: [{ type: refused.event, data: { userId: said?.id ?? null } }],
  }
}

async function consumeToken(tx: Tx, wanted: Consumption): Promise<CodeOutcome> {
  const owner = await consumeSecret(tx, wanted)
  return owner === undefined ? { state: 'wrong' } : { state: 'consumed', email: owner }
}

export type ProvenAccount = {
  readonly account: Account
  /** The facts to append. */
  readonly events: readonly DomainEvent[]
}

/** Does what follows when a mail to the address of a (locked) account was opened (docs/decisions/0008). */
export async function proveOwnership(tx: Tx, account: Account): Promise<ProvenAccount> {
  const { account: proven, credentialsEnd, events } = decideOwnership(account)
  if (credentialsEnd) {
    await verifyWithoutPassword(tx, account.id)
    await dropCredentials(tx, account.id)
    await endAccess(tx, account)
  }
  return { account: proven, events }
}

/**
 * Ends everything that opens an account without its password: sessions (but `keptSession`) with their sockets, and
 * mailed secrets, sign-ins that wait for a second factor. Lock the account before, so that a sign-in at the same time is
 * either refused or ended.
 */
export async function endAccess(
  tx: Tx,
  { id, email }: { readonly id: string; readonly email: string | null },
  keptSession?: string,
): Promise<void> {
  if (email !== null)
    await deleteSecrets(
      tx,
      mailedSecrets.map((purpose) => secretIdentifier(purpose, email)),
    )
  await deleteChallengesOf(tx, id)
  await deleteOtherSessions(tx, id, keptSession)
}

const mailedSecrets: readonly SecretPurpose[] = ['email-verification', 'magic-link', 'password-reset']
