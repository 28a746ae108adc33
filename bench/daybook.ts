import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type pg from 'pg'
import { type Call, callerOf, expectStatus } from '../scripts/http.ts'
import { type Launch, runScript, type Server, startServer } from './processes.ts'
import { seed } from './seed.ts'
import { definitions, type Twin, twins } from './shape.ts'

/** The caller: the administrator, or a user whose role has a rule on the rows of each table. */
export type Role = 'admin' | 'limited'

export type Account = { readonly id: string; readonly roleId: string; readonly token: string; readonly email: string }

export type Prepared = {
  readonly accounts: Readonly<Record<Role, Account>>
  readonly password: string
  /** Variables of both sides. */
  readonly env: Readonly<Record<string, string>>
}

export const password = randomBytes(15).toString('base64url')
const emails = { admin: 'admin@bench.example', limited: 'limited@bench.example' }

/** The production environment with its limits out of the way and without its data cache; everything else is as shipped. */
export function environment(databaseUrl: string, filesDir: string): Record<string, string> {
  return {
    NODE_ENV: 'production',
    HOST: '127.0.0.1',
    PORT: '0',
    DATABASE_URL: databaseUrl,
    SECRET_KEY: randomBytes(32).toString('hex'),
    ADMIN_EMAIL: emails.admin,
    ADMIN_PASSWORD: password,
    RATE_LIMIT_DISABLED: 'true',
    AUTH_RATE_LIMIT_DISABLED: 'true',
    CONNECTION_LIMIT: '0',
    DATA_CACHE_ENABLED: 'false',
    STORAGE_SERVICES_ENABLED: 'local',
    LOCAL_STORAGE_DRIVER: 'LOCAL',
    LOCAL_STORAGE_PATH: filesDir,
    ASSET_TEMP_DIR: join(filesDir, 'temp'),
  }
}

/** As shipped: what is repeated and costs something is answered from memory. */
export const cacheOn = { DATA_CACHE_ENABLED: 'true' }

export const webScript = 'src/api/main.ts'

/** The release step, then collections, role, rule and user through the API, then the rows. */
export async function prepareDaybook(
  env: Readonly<Record<string, string>>,
  sql: pg.Client,
  sizes: Readonly<Record<Twin, number>>,
): Promise<Prepared> {
  await runScript({ script: 'src/setup/main.ts', env })
  await using cleanup = new AsyncDisposableStack()
  const { url } = await startServer({ script: webScript, env }, cleanup)
  const admin = await signIn(url, 'admin')
  const call = callerOf(url, admin.token)
  for (const definition of definitions) expectStatus(await call('POST', '/schemas', definition), 201)
  await makeLimitedUser(call)
  const limited = await signIn(url, 'limited')
  await seed(sql, limited.id, sizes)
  return { accounts: { admin, limited }, password, env }
}

/** `variables` go over those of {@link environment}. */
export function startDaybook(
  { env }: Prepared,
  variables: Readonly<Record<string, string>>,
  cleanup: AsyncDisposableStack,
  nodeArgs: Launch['nodeArgs'] = [],
): Promise<Server> {
  return startServer({ script: webScript, env: { ...env, ...variables }, nodeArgs }, cleanup)
}

type SignedIn = { token: string; user: { id: string }; role: { id: string } }

async function signIn(url: string, role: Role): Promise<Account> {
  const email = emails[role]
  const answer = await callerOf(url)<SignedIn>('POST', '/auth/login', { email, password })
  const { token, user, role: own } = expectStatus(answer, 200)
  return { id: user.id, roleId: own.id, token, email }
}

async function makeLimitedUser(call: Call): Promise<void> {
  const create = async (collection: string, row: object) =>
    expectStatus(await call<{ data: { id: string } }>('POST', `/items/${collection}`, row), 201).data.id
  const role_Id = await create('svc_Role', { name: 'limited' })
  const grant = async (permission: object) =>
    expectStatus(await call('POST', '/permissions', { role_Id, ...permission }), 201)
  await grant({ collection: 'category', action: 'read', fields: ['*'] })
  await grant({ collection: 'svc_User', action: 'read', fields: ['*'], conditions: { id: '$CURRENT_USER' } })
  const own = { fields: ['*', 'category.*'], conditions: { owner_Id: '$CURRENT_USER' } }
  for (const collection of twins) await grant({ collection, action: 'read', ...own })
  for (const action of ['create', 'update', 'delete']) await grant({ collection: 'article', action, ...own })
  await grant({ collection: 'product', action: 'update', ...own })
  const person = { firstName: 'Limited', lastName: 'User', email: emails.limited, password, emailVerified: true }
  const user_Id = await create('svc_User', person)
  await create('svc_UserRole', { user_Id, role_Id })
}
