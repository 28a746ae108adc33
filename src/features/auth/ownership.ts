import type { Tx } from '../../db/sql.ts'
import { deleteChallengesOf } from '../../db/unlogged/challenges.ts'
import { deleteSecrets } from '../../db/unlogged/secrets.ts'
import { deleteOtherSessions } from '../../db/unlogged/sessions.ts'
import type { DomainEvent } from '../../events/types.ts'
import { type SecretPurpose, secretIdentifier } from '../mail/mail.ts'
import { type Account, dropCredentials, verifyWithoutPassword } from './queries.ts'

export type ProvenAccount = {
  readonly account: Account
  /** The facts to append. */
  readonly events: readonly DomainEvent[]
}

/**
 * Somebody has opened what was mailed to the address of a (locked) account, so the address is verified. If it was not
 * before, whoever set the account up may have been somebody else: its password, sessions, links, social accounts, passkeys,
 * keys and second factor end
 * (quality A-36, ADR 8).
 */
export async function proveOwnership(tx: Tx, account: Account): Promise<ProvenAccount> {
  if (account.emailVerified) return { account, events: [] }
  await verifyWithoutPassword(tx, account.id)
  await dropCredentials(tx, account.id)
  await endAccess(tx, account)
  const events: DomainEvent[] = [
    { type: 'auth.email_verified', data: { userId: account.id } },
    { type: 'auth.unverified_credentials_dropped', data: { userId: account.id } },
  ]
  return { account: { ...account, emailVerified: true, password: null }, events }
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
