import { createHmac, randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import {
  accessOfPrincipal,
  type Caller,
  type PrincipalRow,
  principalOf,
  principalSql,
} from '../../../access/principal.ts'
import { openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import { inTurn, verifyPassword } from '../../../adapters/passwords.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { withFreshPlan } from '../../../catalog/store.ts'
import { withoutWaiting } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import { commit } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { oncePer } from '../../../language/once.ts'
import { hasSecondFactor } from '../proofs/proofs.ts'
import { afterwards } from './afterwards.ts'
import type { AuthWrites } from './capabilities.ts'
import { decidePassword } from './decisions.ts'
import { emailOf } from './input.ts'
import { findAccount } from './queries.ts'
import { checkLocal, membershipOf } from './sign-in.ts'

/*
 * E-mail address and password with every request, in `X-MCP-Email` and `X-MCP-Password`: for programs that can do nothing else.
 * There is no session. A password that was right is believed for half a minute, as long as it is still the account's.
 */

const believedMs = 30_000

type Held = { readonly email: string; readonly password: string }

/** A verified password: the account with the hash that its password had. */
type Believed = { readonly userId: string; readonly password: string; readonly userRoleId: string }

/** Keys are of this process: nobody else can tell what password an entry is of. */
const key = randomBytes(32)
const believed = openBoundedMemory<Believed>({ maxBytes: 10_000, maxEntryBytes: 1, sizeOf: () => 1 })

/** The address and password that the headers of a request hold; undefined where there is none. */
export function passwordInHeaders({ headers, routeOptions }: FastifyRequest) {
  const { 'x-mcp-email': email, 'x-mcp-password': password } = headers
  if (routeOptions.config?.takesPasswordInHeaders !== true || headers.authorization) return undefined
  return typeof email === 'string' && typeof password === 'string' ? { email, password } : undefined
}

/** Whether the headers of a request hold a password that is yet to be verified, which makes it an attempt. */
export function isHeaderAttempt(request: FastifyRequest): boolean {
  const held = passwordInHeaders(request)
  return held !== undefined && !believed.has(entryOf(held))
}

/**
 * The user of the address and password in the headers, in the role that signing in would give; as little as an API key may do
 * to an account.
 *
 * @throws {AppError} 401 for a wrong password; 403 for an account that is not active, whose address is not verified, that has a
 *   second factor or no role, and where signing in by password is off
 */
export async function callerOfPassword(deps: AuthWrites, request: FastifyRequest, held: Held): Promise<Caller> {
  checkLocal(deps)
  const entry = entryOf(held)
  const known = believed.get(entry) ?? (await verify(deps, request, held))
  const row = await principalRow(deps, known)
  if (row === undefined) {
    believed.delete(entry)
    throw wrong()
  }
  const principal = await principalOf(deps.reserved, deps.access.current(), deps.config.tenancy.enabled, row, deps.log)
  const access = { ...accessOfPrincipal(deps, principal), byKey: true }
  const { role, userId, tenantId, user } = principal
  return { sessionId: undefined, keyId: undefined, role, userId, tenantId, user, admin: access.admin, access }
}

async function verify(deps: AuthWrites, request: FastifyRequest, held: Held): Promise<Believed> {
  const { account, matches } = await inTurn(async () => {
    const account = await findAccount(withoutWaiting(deps), emailOf(held.email))
    return {
      account,
      matches: await verifyPassword(held.password, account?.password, deps.config.auth.passwordHashCost),
    }
  })
  const decided = decidePassword(account, matches, { requireEmailVerification: true })
  if (decided.refusal !== undefined) {
    const { events } = decided
    const record = () => commit(deps, actorOf(request), async () => ({ result: undefined, events }))
    if (events.length > 0) afterwards(deps, 'recording a failed login', record)
    throw decided.refusal.status === 400 ? wrong() : decided.refusal
  }
  const { id: userId, password } = decided.account
  if (await hasSecondFactor(withoutWaiting(deps), userId))
    throw new AppError(403, 'This account has a second factor: sign in and send the token, or use an API key', {
      code: 'TWO_FACTOR_REQUIRED',
    })
  const { userRoleId } = await membershipOf(deps, withoutWaiting(deps), userId, undefined)
  const known = { userId, password: password!, userRoleId }
  believed.set(entryOf(held), known, believedMs)
  return known
}

/** Undefined where something of what was verified no longer holds. */
async function principalRow(deps: AuthWrites, known: Believed): Promise<PrincipalRow | undefined> {
  return withFreshPlan(deps.catalog, async () => {
    const values = [known.userId, known.password, known.userRoleId]
    const [row] = await deps.reserved.run<PrincipalRow>(holderSql(deps.catalog.current()), values, 'prepared')
    return row
  })
}

const holderSql = oncePer(
  (catalog: Catalog) => `
    select u.id as "userId", ur."tenant_Id" as "tenantId", ${principalSql(catalog)}
    from "svc_User" u
    join "svc_UserRole" ur on ur.id = $3 and ur."user_Id" = u.id
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where u.id = $1 and u.password = $2 and u.status = 'active' and u."emailVerified"
      and not exists (select from "svc_TwoFactor" f where f."user_Id" = u.id and f.enabled)`,
)

const entryOf = ({ email, password }: Held): string =>
  createHmac('sha256', key)
    .update(JSON.stringify([email, password]))
    .digest('base64url')

const wrong = () => new AppError(401, 'Incorrect e-mail address or password', { code: 'INVALID_CREDENTIALS' })
