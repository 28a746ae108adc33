import { hashSecret, newSecret } from '../../adapters/tokens.ts'
import type { Tx } from '../../db/sql.ts'
import { type Challenge, insertChallenge } from '../../db/unlogged/challenges.ts'
import type { Runtime } from '../../runtime.ts'
import type { AuthMode } from '../auth/input.ts'
import type { Account } from '../auth/queries.ts'
import type { SessionType } from '../auth/session-store.ts'
import type { FirstFactor } from '../auth/sign-in.ts'
import { hasSecondFactor } from './queries.ts'

/** What a sign-in asked for, kept while its second factor is awaited (auth facts §4). */
export type PendingSignIn = {
  readonly tenantId: string | null
  readonly type: SessionType
  readonly authMode: AuthMode
  /** Changes with the account's password: a reset or change ends every challenge. */
  readonly passwordMark: string
}

/** A new challenge for whoever has proven the first factor; undefined where no second one is asked for. */
export async function challengeSecondFactor(
  rt: Runtime,
  tx: Tx,
  { account, membership, type, authMode }: FirstFactor,
): Promise<string | undefined> {
  if (!rt.config.auth.twoFactor || !(await hasSecondFactor(tx, account.id))) return undefined
  const token = newSecret()
  const data: PendingSignIn = { tenantId: membership.tenantId, type, authMode, passwordMark: passwordMark(account) }
  await insertChallenge(tx, { identifier: challengeIdentifier(token), userId: account.id, data })
  return token
}

/** The database knows a challenge by this, so its token can't be read there. */
export function challengeIdentifier(token: string): string {
  return `two-factor:${hashSecret(token)}`
}

export function passwordMark({ password }: Account): string {
  return hashSecret(password ?? '')
}

export function pendingOf({ data }: Challenge): PendingSignIn {
  return data as PendingSignIn
}
