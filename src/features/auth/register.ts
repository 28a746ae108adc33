import type { FastifyRequest } from 'fastify'
import { hashPassword } from '../../adapters/passwords.ts'
import type { Tx } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import { commit, type Outcome } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { queueMail } from '../mail/mail.ts'
import { administratorRole } from '../permissions/permissions.ts'
import type { Role } from '../permissions/store.ts'
import { personBody, standingOf } from './answers.ts'
import { checkNewPassword, emailOf, membersOf, nameOf, secretOf, sessionTypeOf, textOf } from './input.ts'
import { defaultLink, trustedLink } from './links.ts'
import { checkLocal } from './login.ts'
import { insertUser, type NewUser } from './queries.ts'
import type { SessionType } from './session-store.ts'
import { openSession } from './sessions.ts'

/**
 * Creates an account with the role DEFAULT_ROLE_REGISTERED (spec: POST /auth/register). With a token it is signed in;
 * without one its address must be verified first, or (AUTH_GENERIC_RESPONSES) the answer may not tell whether there
 * was an account already. Of the body only the members read here count: no other one can choose role, tenant or id.
 *
 * @throws {AppError} 400 for missing or invalid members, an account of the same address, an untrusted link;
 *   403 where registration is closed
 */
export async function register(rt: Runtime, request: FastifyRequest) {
  const members = membersOf(request.body)
  checkOpen(rt, members)
  const type = sessionTypeOf(members.authType)
  const { password, ...person } = readPerson(members)
  const link = rt.config.auth.requireEmailVerification ? linkOf(rt, members.link) : undefined
  const role = registeredRole(rt)
  const user = { ...person, id: rt.newId(), roleId: role.id, passwordHash: await hashPassword(password) }
  const created = await create(rt, request, { user, role, type, link })
  if (rt.config.auth.genericResponses) return { token: undefined, body: genericBody(rt) }
  if (created === undefined) throw new AppError(400, 'User already exists')
  return { token: created.token, body: registeredBody(rt, user, role) }
}

type Wanted = { user: NewUser; role: Role; type: SessionType; link: string | undefined }
type Created = { readonly token: string | undefined }

/** Undefined when the address or phone number has an account. */
async function create(rt: Runtime, request: FastifyRequest, wanted: Wanted): Promise<Created | undefined> {
  const { user, role } = wanted
  const actor = actorOf(request, { userId: user.id, tenantId: undefined, role })
  return commit<Created | undefined>(rt, actor, async (tx) => {
    if (!(await insertUser(tx, user))) return { result: undefined }
    return wanted.link === undefined ? firstSession(rt, tx, request, wanted) : firstMail(tx, user, wanted.link)
  })
}

/** A generic answer can't carry a token, so nothing would ever use the session. */
async function firstSession(rt: Runtime, tx: Tx, request: FastifyRequest, wanted: Wanted): Promise<Outcome<Created>> {
  const { id: userId, roleId, passwordHash } = wanted.user
  const registered = { type: 'auth.register', data: { userId } } as const
  if (rt.config.auth.genericResponses) return { result: { token: undefined }, events: [registered] }
  const token = await openSession(rt, tx, request, { userId, roleId, tenantId: null, type: wanted.type, passwordHash })
  return { result: { token }, events: [registered, { type: 'auth.login', data: { userId } }] }
}

async function firstMail(tx: Tx, user: NewUser, link: string): Promise<Outcome<Created>> {
  const { event } = await queueMail(tx, { type: 'verification', to: user.email, user, context: { link } })
  return { result: { token: undefined }, events: [{ type: 'auth.register', data: { userId: user.id } }, event] }
}

/** In multi-tenant mode an account needs a tenant, which only an invitation could give it. */
function checkOpen(rt: Runtime, members: Readonly<Record<string, unknown>>): void {
  checkLocal(rt)
  if (secretOf(members.inviteToken) !== undefined) throw new AppError(400, 'Invalid or expired invitation')
  if (!rt.config.auth.publicRegistration || rt.config.tenancy.enabled)
    throw new AppError(403, 'Public registration is disabled', { code: 'REGISTRATION_DISABLED' })
}

function readPerson(members: Readonly<Record<string, unknown>>) {
  const [email, firstName, lastName] = [members.email, members.firstName, members.lastName].map(textOf)
  const password = secretOf(members.password)
  if (email === undefined || password === undefined || firstName === undefined)
    throw new AppError(400, 'Email, password, and firstName are required')
  if (lastName === undefined) throw new AppError(400, 'lastName is required')
  checkNewPassword(password)
  return {
    email: emailOf(email),
    password,
    firstName: nameOf(firstName),
    lastName: nameOf(lastName),
    phone: phoneOf(members.phone),
  }
}

function phoneOf(value: unknown): string | null {
  const phone = textOf(value)?.trim() ?? null
  if (phone !== null && !/^[+\d][\d\s()./-]{2,39}$/.test(phone)) throw new AppError(400, 'Invalid phone number')
  return phone
}

function linkOf(rt: Runtime, link: unknown): string {
  return link === undefined || link === null ? defaultLink(rt) : trustedLink(rt, link)
}

function registeredRole(rt: Runtime): Role {
  const name = rt.config.auth.defaultRoleRegistered
  const role = [...rt.access.current().roles.values()].find((candidate) => candidate.name === name)
  if (role === undefined || role.name === administratorRole)
    throw new Error(`DEFAULT_ROLE_REGISTERED: ${name} is no role that a registration may give`)
  return role
}

function registeredBody(rt: Runtime, user: NewUser, role: Role) {
  const about = { user: personBody(user), ...standingOf(rt, role), tenant: null }
  const verification = rt.config.auth.requireEmailVerification
  return verification
    ? { message: `${registered}. Please verify your email to login.`, requiresEmailVerification: true, ...about }
    : { message: registered, ...about }
}

const registered = 'User registered successfully'

function genericBody(rt: Runtime) {
  return rt.config.auth.requireEmailVerification
    ? {
        message: `If this email was not registered yet, an account was created. Please verify your email to login.`,
        requiresEmailVerification: true,
      }
    : { message: 'If this email was not registered yet, an account was created. Please sign in.' }
}
