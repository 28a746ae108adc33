import { hashPassword } from '../../src/adapters/passwords.ts'
import { codeFrom, hashOneTime, newSecret, type SecretForm } from '../../src/adapters/tokens.ts'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import type { Api } from './api.ts'

export const password = 'password of a user'
let hash: Promise<string> | undefined
let count = 0

export type TestAccount = { readonly id: string; readonly email: string }

/** An account with the role `user` and the password above, without a session. */
export async function createAccount(api: Api, columns: Record<string, unknown> = {}): Promise<TestAccount> {
  count += 1
  hash ??= hashPassword(password, api.runtime.config.auth.passwordHashCost)
  const row = { email: `account${count}@example.com`, emailVerified: true, password: await hash, ...columns }
  const names = Object.keys(row).map((name) => `, "${name}"`)
  const [{ id }] = await api.sql(
    `insert into "svc_User" ("firstName", "lastName" ${names.join('')})
     values ('Ada', 'Lovelace' ${names.map((_name, i) => `, $${i + 1}`).join('')}) returning id`,
    Object.values(row),
  )
  await api.sql(`insert into "svc_UserRole" ("user_Id", "role_Id") select $1, id from "svc_Role" where name = 'user'`, [
    id,
  ])
  return { id, email: row.email }
}

/** The token of a new session. */
export async function sessionOf(api: Api, { email }: TestAccount): Promise<string> {
  const { body } = await api.anonymous('POST', '/auth/login', { email, password })
  if (body.token === undefined) throw new Error(`no session for ${email}: ${body.message}`)
  return body.token
}

export type PlantOptions = { form?: SecretForm; expires?: string }

/** What the mail worker stores when it sends a mail with a secret; the secret. */
export async function plant(
  api: Api,
  purpose: string,
  email: string,
  { form = 'token', expires = '15 minutes' }: PlantOptions = {},
): Promise<string> {
  const random = newSecret()
  const secret = form === 'token' ? random : codeFrom(random)
  await api.sql(
    `insert into "svc_Verification" (identifier, value, "expiresAt", "createdAt")
     values ($1, $2, now() + $3::interval, clock_timestamp())`,
    [`${purpose}:${email}`, hashOneTime(api.runtime.config, purpose, form, secret), expires],
  )
  return secret
}

/** What happened since a position, one line per event. */
export async function factsSince(api: Api, after: bigint): Promise<string[]> {
  await afterwardsDone(api.runtime)
  return (await api.log(after)).map(({ entity, action }) => `${entity} ${action}`)
}
