import type { FastifyRequest } from 'fastify'
import { clientNetwork } from '../../adapters/client-address.ts'
import type { Tx } from '../../db/sql.ts'
import { type CodeOutcome, type Consumption, consumeCode, consumeSecret } from '../../db/unlogged/secrets.ts'
import { AppError } from '../../errors.ts'
import type { DomainEvent } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import type { SecretPurpose } from '../mail/mail.ts'
import { presentedSecret } from './one-time.ts'
import { type ProvenAccount, proveOwnership } from './ownership.ts'
import { findAccount, lockHolder } from './queries.ts'

export type Presented = {
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
  rt: Runtime,
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
  if (outcome.state === 'blocked') return { refusal: tooManyAttempts(outcome.retryAfterSeconds), events: [] }
  if (outcome.state === 'needs-email') return { refusal: new AppError(400, 'Email is required'), events: [] }
  const opens = outcome.state === 'consumed' && holder?.email === outcome.email && holder.status === 'active'
  if (opens) return proveOwnership(tx, holder)
  const said = email === undefined ? undefined : await findAccount(tx, email)
  return {
    refusal: new AppError(400, refused.message),
    events: [{ type: refused.event, data: { userId: said?.id ?? null } }],
  }
}

async function consumeToken(tx: Tx, wanted: Consumption): Promise<CodeOutcome> {
  const owner = await consumeSecret(tx, wanted)
  return owner === undefined ? { state: 'wrong' } : { state: 'consumed', email: owner }
}

function tooManyAttempts(seconds: number): AppError {
  return new AppError(429, 'Too many attempts. Please try again later.', {
    headers: { 'retry-after': String(seconds) },
  })
}
