import { createHmac } from 'node:crypto'
import { deriveKeys, hashSecret, type VerifiedClaims } from '../../../adapters/tokens.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { ReservedReads } from '../../../db/pools.ts'
import { type Reader, sql } from '../../../db/sql.ts'
import { mayRepeat, type RenewedSession } from './decisions.ts'
import type { Session, Sessions } from './session-store.ts'

/*
 * The answer to a renewal may be lost on its way, and the token that was sent has ended by then. So the session that replaces
 * another one has a token that follows from the former one's: who sends that again gets the same.
 */

/** The token of the session that replaces the one with this token; after it that of an earlier SECRET_KEY, if there is one. */
export function successorsOf(config: Config, sessionToken: string): readonly [string, ...string[]] {
  const derived = deriveKeys(config, 'renewed sessions').map((key) =>
    createHmac('sha256', key).update(sessionToken).digest('hex'),
  )
  return derived as [string, ...string[]]
}

/** The live session that has replaced the one with this token, as the primary has it now. */
export async function findSuccessor(db: Reader, config: Config, former: string): Promise<RenewedSession | undefined> {
  const tokens = successorsOf(config, former)
  const row = await db.maybeOne<Omit<RenewedSession, 'sessionToken'> & { token: string }>(sql`
    select s.token, s."user_Id" as "userId", ur.id as "userRoleId",
      s."lastUsedAt" is not distinct from s."createdAt" as "isUnused",
      (extract(epoch from now() - s."createdAt") * 1000)::float8 as "ageMs"
    from "svc_Sessions" s
    left join "svc_UserRole" ur on ur."user_Id" = s."user_Id" and ur."tenant_Id" is not distinct from s."tenant_Id"
    where s.token = any(${sql.array(tokens.map(hashSecret), 'text')}) and s."expiresAt" > now()`)
  if (row === undefined) return undefined
  const { token, ...found } = row
  return { ...found, sessionToken: tokens.find((one) => hashSecret(one) === token)! }
}

/** The session that a token has been replaced by, where its renewal may be asked for again. */
export async function repeatedRenewal(
  deps: ReservedReads & Configuration & Sessions,
  { userId, sessionToken, delegation }: VerifiedClaims,
): Promise<{ readonly renewed: RenewedSession; readonly session: Session } | undefined> {
  if (delegation !== undefined) return undefined
  const renewed = await findSuccessor(deps.reserved, deps.config, sessionToken)
  if (!mayRepeat(userId, renewed)) return undefined
  const session = await deps.sessions.find(renewed.sessionToken)
  return session && { renewed, session }
}
