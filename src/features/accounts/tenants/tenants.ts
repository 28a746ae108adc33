import type { CurrentAccess } from '../../../access/store.ts'
import { hashSecret } from '../../../adapters/tokens.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Clock } from '../../../db/clock.ts'
import { type Reads, withoutWaiting } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import { commit, commitRow, type Writes } from '../../../events/commit.ts'
import { systemActor } from '../../../events/types.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { expireInvites, expireOldInvites, findInvite, type Invite } from './queries.ts'

// Tenants, memberships and invitations as ways to sign in and the workers use them. What callers do with their own
// (`invites.ts`, `own-tenants.ts`) opens sessions, so it builds on signing in.

export { acceptInvite, findTenant, type Invite, insertMembership, insertTenant } from './queries.ts'

/** The invitation of a token; undefined when it is unknown, accepted, revoked or expired, and then it is marked as that. */
export async function openInvite(rt: Reads & Writes, token: string | undefined): Promise<Invite | undefined> {
  if (token === undefined || !/^[0-9a-f]{64}$/.test(token)) return undefined
  const tokenHash = hashSecret(token)
  const found = await findInvite(withoutWaiting(rt), tokenHash)
  if (found === undefined)
    await commit(rt, systemActor, async (tx) => ({ result: await expireInvites(tx, { tokenHash }) }))
  return found
}

export const invalidInvite = (members?: { valid: false }) =>
  new AppError(400, 'Invalid or expired invitation', members && { members })

const batchSize = 500

/** Says of invitations that nobody has accepted in time that they are over; they stay, as a record of who was invited. */
export async function endInvites(rt: Writes, signal: AbortSignal): Promise<void> {
  for (let count = batchSize; count === batchSize; ) {
    signal.throwIfAborted()
    count = (await commitRow(rt, systemActor, expireOldInvites(batchSize))).length
    if (count > 0) rt.log.info({ invitations: count }, 'invitations have expired')
  }
}

/** The capabilities that changes of this folder need. */
export type TenantWrites = Reads & Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings
