import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import type { CurrentAccess, Role } from '../../../access/store.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import type { Logs } from '../../../adapters/logger.ts'
import { hashPassword } from '../../../adapters/passwords.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { commit, type WorkResult, type Writes } from '../../../events/commit.ts'
import type { DomainEvent } from '../../../events/types.ts'
import { actorOf } from '../../../http/http.ts'
import { isObject } from '../../../query/guards.ts'
import { queueMail } from '../../messaging/mail/mail.ts'
import { acceptInvite, findTenant, insertTenant, invalidInvite, openInvite } from '../membership/membership.ts'
import { personBody, roleAndPermissions, tenantBody } from './browser.ts'
import type { AuthReads, AuthWrites } from './capabilities.ts'
import { decideAskedRole, decideRegisteredRole, roleNamed } from './decisions.ts'
import { insertUser, type NewUser } from './queries.ts'
import type { SessionType } from './session-store.ts'
import { openSession } from './sessions.ts'
import { checkNewPassword, defaultLink, emailOf, nameOf, type RegisterBody, trustedLink } from './shapes.ts'

/**
 * Creates an account: in the role and at the tenant of its invitation; in multi-tenant mode
 * without one at a new tenant of its own; else with the role DEFAULT_ROLE_REGISTERED. With a token it is signed in;
 * without one its address must be verified first, or (AUTH_GENERIC_RESPONSES) the answer may not tell whether there
 * was an account already. An invitation was mailed to the address, so it needs neither. Of the body only the members
 * read here count: no other one can choose role, tenant or id.
 *
 * @throws {AppError} 400 for missing or invalid members, an account of the same address or phone number, an untrusted link, an
 *   invitation that is over or another address's; 403 where registration is closed or the session over its limit
 */
export async function register(deps: AuthWrites, request: FastifyRequest, body: RegisterInput) {
  const { authType: type = 'default', inviteToken, password } = body
  const invited = inviteToken !== undefined
  const person = personOf(body)
  const { requireEmailVerification, genericResponses } = deps.config.auth
  const given = body.link === undefined ? undefined : trustedLink(deps, body.link)
  const link = requireEmailVerification && !invited ? (given ?? defaultLink(deps)) : undefined
  const place = invited ? await invitedPlace(deps, inviteToken, person.email) : await openPlace(deps, body)
  const passwordHash = await hashPassword(password, deps.config.auth.passwordHashCost)
  const account = { ...person, id: deps.newId(), emailVerified: invited, passwordHash }
  const user = { ...account, roleId: place.role.id, tenantId: place.tenantId }
  const wanted = { user, place, type, link, generic: genericResponses && !invited }
  if (wanted.generic) {
    await create(deps, request, wanted).catch(unlessKnown)
    return { token: undefined, body: genericBody(deps) }
  }
  const created = await create(deps, request, wanted)
  return { token: created.token, body: registeredBody(deps, wanted, created) }
}

type RegisterInput = Static<typeof RegisterBody>

/** Where an account is to be: in a role, at a tenant in multi-tenant mode. */
type Placement = {
  readonly role: Role
  readonly tenantId: string | null
  /** Of a tenant that is created with the account. */
  readonly tenantName?: string
  readonly inviteId?: string
}

type Registration = { user: NewUser; place: Placement; type: SessionType; link: string | undefined; generic: boolean }
type NewAccess = { readonly token: string | undefined; readonly tenant: Readonly<Record<string, unknown>> | null }

/** Nothing stays of the attempt where it throws. */
async function create(deps: AuthWrites, request: FastifyRequest, wanted: Registration): Promise<NewAccess> {
  const { place } = wanted
  const { id: userId, tenantId } = wanted.user
  const actor = actorOf(request, { userId, tenantId: tenantId ?? undefined, role: place.role })
  return commit<NewAccess>(deps, actor, async (tx) => {
    // Before the account: whether the name is taken must not depend on whether the address is.
    if (place.tenantName !== undefined && !(await insertTenant(tx, place.tenantId!, place.tenantName)))
      throw new AppError(400, 'A tenant with this name already exists')
    const user = await insertAccount(tx, wanted)
    const joined = await useInvite(tx, user.id, place)
    const { result: token, events = [] } = await (wanted.link === undefined
      ? firstSession(deps, tx, request, wanted)
      : firstMail(tx, user, wanted.link))
    const tenant = place.tenantId === null ? undefined : await findTenant(tx, deps.catalog.current(), place.tenantId)
    return {
      result: { token, tenant: tenant ?? null },
      events: [...joined, ...events, ...(await welcome(deps, tx, user))],
    }
  })
}

/**
 * The account as it was made. Nobody has proved to have a phone number: where the answer may not tell that another account has
 * it, the account is made without one.
 */
async function insertAccount(tx: Tx, { user, generic }: Pick<Registration, 'user' | 'generic'>): Promise<NewUser> {
  const outcome = await insertUser(tx, user)
  if (outcome === 'created') return user
  if (outcome === 'address taken') throw new KnownAccount()
  if (generic) return insertAccount(tx, { user: { ...user, phone: null }, generic })
  const field = 'phone'
  throw new AppError(400, 'The phone number belongs to another account', { code: 'PHONE_TAKEN', members: { field } })
}

class KnownAccount extends AppError {
  constructor() {
    super(400, 'User already exists')
  }
}

function unlessKnown(error: unknown): void {
  if (!(error instanceof KnownAccount)) throw error
}

async function useInvite(tx: Tx, userId: string, { inviteId }: Placement): Promise<readonly DomainEvent[]> {
  if (inviteId === undefined) return []
  if (!(await acceptInvite(tx, inviteId, userId))) throw invalidInvite()
  return [{ type: 'auth.invite_accepted', data: { userId, inviteId } }]
}

/** SEND_WELCOME_EMAIL, beside the verification mail where there is one. */
async function welcome({ config }: Configuration, tx: Tx, user: NewUser): Promise<readonly DomainEvent[]> {
  const { sendWelcomeEmail, welcomeEmailSubject: subject } = config.auth
  if (!sendWelcomeEmail) return []
  const tenantId = user.tenantId ?? undefined
  const more = { ...(subject && { subject }), ...(tenantId && { tenantId }) }
  return [(await queueMail(tx, { type: 'welcome', to: user.email, user, context: {}, ...more })).event]
}

/** A generic answer can't carry a token, so nothing would ever use the session. */
async function firstSession(
  deps: AuthReads,
  tx: Tx,
  request: FastifyRequest,
  { user, type, generic }: Registration,
): Promise<WorkResult<string | undefined>> {
  const { id: userId, roleId, tenantId, passwordHash } = user
  const registered = { type: 'auth.register', data: { userId } } as const
  if (generic) return { result: undefined, events: [registered] }
  const token = await openSession(deps, tx, request, { userId, roleId, tenantId, type, passwordHash })
  return { result: token, events: [registered, { type: 'auth.login', data: { userId } }] }
}

async function firstMail(tx: Tx, user: NewUser, link: string): Promise<WorkResult<undefined>> {
  const mail = { type: 'verification', to: user.email, user, context: { link } } as const
  const { event } = await queueMail(tx, user.tenantId === null ? mail : { ...mail, tenantId: user.tenantId })
  return { result: undefined, events: [{ type: 'auth.register', data: { userId: user.id } }, event] }
}

/** 403 where registration is closed, unless the body has an invitation. */
export function requireOpen({ config }: Configuration, body: unknown): void {
  const invitation = isObject(body) ? body.inviteToken : undefined
  const isInvited = typeof invitation === 'string' && invitation !== ''
  if (!config.auth.publicRegistration && !isInvited)
    throw new AppError(403, 'Public registration is disabled', { code: 'REGISTRATION_DISABLED' })
}

/** The invitation alone decides where. */
async function invitedPlace(deps: Reads & Writes & CurrentAccess, token: string, email: string): Promise<Placement> {
  if (!deps.config.tenancy.enabled) throw invalidInvite()
  const invite = await openInvite(deps, token)
  if (invite === undefined) throw invalidInvite()
  if (invite.email !== email) throw new AppError(400, "The email address doesn't match the invitation")
  const { roles } = await deps.access.knowing(invite.roleId)
  const role = roles.get(invite.roleId)
  if (role === undefined) throw invalidInvite()
  return { role, tenantId: invite.tenantId, inviteId: invite.id }
}

type RegistrationReads = Configuration & CurrentAccess & IdSource

async function openPlace(deps: RegistrationReads, { tenant, roleName: asked }: RegisterInput): Promise<Placement> {
  const { allowedRolesMultiTenant: allowed, defaultRoleRegistered } = deps.config.auth
  // Of the configured roles alone, so that guesses cost nothing.
  await deps.access.knowing(asked !== undefined && allowed.includes(asked) ? asked : defaultRoleRegistered)
  if (!deps.config.tenancy.enabled) return { role: registeredRole(deps), tenantId: null }
  const tenantName = tenant?.name
  if (tenantName === undefined)
    throw new AppError(400, 'Tenant information is required for registration in multi-tenant mode')
  const role = asked === undefined ? registeredRole(deps) : decideAskedRole(rolesOf(deps), asked, allowed)
  return { role, tenantId: deps.newId(), tenantName: nameOf(tenantName) }
}

function personOf({ email, password, firstName, lastName, phone }: RegisterInput) {
  checkNewPassword(password)
  return {
    email: emailOf(email),
    firstName: nameOf(firstName),
    lastName: nameOf(lastName),
    phone: phoneOf(phone),
  }
}

function phoneOf(typed: string | undefined): string | null {
  const phone = typed?.trim() ?? null
  if (phone !== null && !/^[+\d][\d\s()./-]{2,39}$/.test(phone)) throw new AppError(400, 'Invalid phone number')
  return phone
}

/** The role DEFAULT_ROLE_REGISTERED; 503 where there is none. */
export function registeredRole(deps: Configuration & CurrentAccess): Role {
  return decideRegisteredRole(rolesOf(deps), deps.config.auth.defaultRoleRegistered)
}

/** Warns where no registration can succeed. The role may be made later, so it is no reason not to start. */
export function checkRegisteredRole(deps: Configuration & CurrentAccess & Logs): void {
  const { publicRegistration, defaultRoleRegistered: name } = deps.config.auth
  if (publicRegistration && roleNamed(rolesOf(deps), name) === undefined)
    deps.log.warn(`DEFAULT_ROLE_REGISTERED: there is no role "${name}", so nobody can register`)
}

const rolesOf = ({ access }: CurrentAccess): Iterable<Role> => access.current().roles.values()

function registeredBody(
  deps: Configuration & CurrentAccess,
  { user, place, link }: Registration,
  { tenant }: NewAccess,
) {
  const about = { user: personBody(user), ...roleAndPermissions(deps, place.role), tenant: tenantBody(deps, tenant) }
  if (link === undefined) return { message: registered, ...about }
  // Only users who have proved their address learn the role's permissions.
  const unverified = { ...about, permissions: [] }
  return {
    message: `${registered}. Please verify your email to login.`,
    requiresEmailVerification: true,
    ...unverified,
  }
}

const registered = 'User registered successfully'

function genericBody({ config }: Configuration) {
  return config.auth.requireEmailVerification
    ? {
        message: `If this email was not registered yet, an account was created. Please verify your email to login.`,
        requiresEmailVerification: true,
      }
    : { message: 'If this email was not registered yet, an account was created. Please sign in.' }
}
