import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Example, exampleOfRoute, stories, tenants } from '../../scripts/reference/examples/examples.ts'
import { platformRoutes } from '../../scripts/reference/routes.ts'
import { pathOf } from '../../src/features/operations/openapi/openapi.ts'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { type Api, startApi } from '../support/api.ts'

const common = { MCP_ENABLED: 'true', SOCKET_ENABLED: 'true', AUTH_APP_URL: 'http://localhost:3000' }

/** What answers gave, by name. */
type Known = Map<string, string>

/** Sends the requests one after the other; gives those that were answered otherwise than their page says. */
async function tell(api: Api, story: readonly Example[], known: Known): Promise<string[]> {
  const wrong: string[] = []
  for (const example of story) {
    const { status = 200, keep = {} } = example
    const answer = await send(api, example, known)
    if (answer.status !== status) wrong.push(`${example.route}: ${answer.status} ${answer.text}`)
    for (const [name, place] of Object.entries(keep)) {
      const header = place.startsWith('header:') ? answer.headers[place.slice('header:'.length)] : undefined
      known.set(name, String(header ?? place.split('.').reduce((value, member) => value?.[member], answer.body)))
    }
  }
  return wrong
}

async function send(api: Api, { route, path, body, form, text, headers = {}, as }: Example, known: Known) {
  const filled = (template: string) => template.replaceAll(/\{\{(\w+)\}\}/g, (_whole, name) => known.get(name) ?? '')
  const [method = '', url = ''] = route.split(' ')
  const call = as === undefined ? api.admin : as === 'nobody' ? api.anonymous : api.as(known.get(as)!)
  const given = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, filled(value)]))
  const address = filled(path ?? url)
  if (form === undefined) {
    const payload = body === undefined ? text : JSON.parse(filled(JSON.stringify(body)))
    return call(method, address, payload, given)
  }
  const parts = new FormData()
  for (const [name, part] of Object.entries(form))
    typeof part === 'string' ? parts.append(name, part) : parts.append(name, new Blob([part[1]]), part[0])
  const encoded = new Response(parts)
  const type = encoded.headers.get('content-type')!
  return call(method, address, Buffer.from(await encoded.arrayBuffer()), { ...given, 'content-type': type })
}

describe('requests on the pages of the reference', () => {
  let api: Api
  const known: Known = new Map()

  beforeAll(async () => {
    api = await startApi(common)
    const service = await openWorkflows(api.runtime)
    return () => service.stop(5000)
  })

  // In order: each goes on where the one before has ended.
  it.each(Object.entries(stories))('are answered as the page says: %s', async (_name, story) => {
    expect(await tell(api, story, known)).toEqual([])
  })

  it('are answered as the page says: tenants, second factors, passkeys', async () => {
    const passkeys = { PASSKEY_RP_ID: 'localhost', PASSKEY_RP_NAME: 'Test', PASSKEY_ORIGIN: 'http://localhost:3000' }
    const ways = { ...passkeys, AUTH_SERVICES_ENABLED: 'LOCAL,PASSKEY,TWOFACTOR' }
    const own = await startApi({ ...common, ...ways, MULTI_TENANT: 'true', ALLOWED_ROLES_MULTI_TENANT: 'owner' })
    expect(await tell(own, tenants, new Map())).toEqual([])
  })

  it('are there for every route, but for those that need more than a request', async () => {
    const routes = (await platformRoutes()).map(({ method, url }) => `${method} ${pathOf(url)}`)
    expect([...exampleOfRoute.keys()].filter((route) => !routes.includes(route))).toEqual([])
    expect(routes.filter((route) => !exampleOfRoute.has(route)).sort()).toEqual([...triedElsewhere.keys()].sort())
    for (const file of triedElsewhere.values()) expect(existsSync(join(import.meta.dirname, file)), file).toBe(true)
  })
})

/** What needs a mail, a browser, another service or a fault, and the file that tries it. */
const triedElsewhere: ReadonlyMap<string, string> = new Map([
  ['POST /files/tus/{id}', 'files-tus.test.ts'],
  ['POST /auth/first-sign-in', 'console.test.ts'],
  ['GET /auth/magiclink/{token}', 'auth-magic-link.test.ts'],
  ['POST /auth/password/reset/{token}', 'auth-password-reset.test.ts'],
  ['GET /auth/email/verify/{token}', 'auth-verification.test.ts'],
  ['POST /auth/email/verify', 'auth-verification.test.ts'],
  ['POST /auth/2fa/verify', 'two-factor.test.ts'],
  ['POST /auth/2fa/verify-setup', 'two-factor.test.ts'],
  ['POST /auth/2fa/disable', 'two-factor.test.ts'],
  ['POST /auth/passkey/authenticate/verify', 'passkeys.test.ts'],
  ['POST /auth/passkey/register/verify', 'passkeys.test.ts'],
  ['DELETE /auth/passkey/{id}', 'passkeys.test.ts'],
  ['POST /auth/social/signin', 'social.test.ts'],
  ['GET /auth/signin/{provider}', 'social.test.ts'],
  ['GET /auth/callback/{provider}', 'social.test.ts'],
  ['POST /auth/callback/apple', 'social.test.ts'],
  ['GET /.well-known/oauth-authorization-server/{path}', 'oauth.test.ts'],
  ['GET /.well-known/openid-configuration/{path}', 'oauth.test.ts'],
  ['POST /oauth/consent', 'oauth.test.ts'],
  ['POST /oauth/sign-in', 'oauth.test.ts'],
  ['GET /oauth/sign-in', 'oauth.test.ts'],
  ['POST /oauth/sign-in-mail', 'oauth.test.ts'],
  ['POST /oauth/sign-in-code', 'oauth.test.ts'],
  ['POST /oauth/sign-in-second-factor', 'oauth.test.ts'],
  ['GET /oauth/sign-in-social', 'oauth.test.ts'],
  ['POST /oauth/sign-out', 'oauth.test.ts'],
  ['POST /oauth/token', 'oauth.test.ts'],
  ['POST /oauth/revoke', 'oauth.test.ts'],
  ['GET /auth/verify-invite/{token}', 'tenants.test.ts'],
  ['POST /auth/accept-invite', 'tenants.test.ts'],
  ['GET /log/head', 'log-seals.test.ts'],
  ['POST /files/upload-from-url', 'files.test.ts'],
  ['POST /files/import', 'files.test.ts'],
  ['GET /migrations/{version}', 'migrations.test.ts'],
  ['POST /migrations/run', 'migrations.test.ts'],
  ['POST /migrations/create', 'migrations.test.ts'],
  ['POST /migrations/rollback/{version}', 'migrations.test.ts'],
  ['POST /migrations/rollback-batch', 'migrations.test.ts'],
  ['POST /migrations/mark-completed/{version}', 'migrations.test.ts'],
  ['POST /migrations/mark-all-completed', 'migrations.test.ts'],
  ['POST /settings/test-email', 'mail-settings.test.ts'],
  ['POST /webhooks/{id}/replay', 'webhooks.test.ts'],
  ['GET /webhooks/{id}/deliveries/{delivery}', 'webhooks.test.ts'],
  ['POST /webhooks/{id}/deliveries/{delivery}/redeliver', 'webhooks.test.ts'],
  ['POST /workflows/{id}/executions/{execution}/retry', 'workflow-executions.test.ts'],
  ['POST /ops/consumers/{name}/reset', 'consumers.test.ts'],
  ['POST /ops/consumers/{name}/skip', 'consumers.test.ts'],
  ['POST /ops/consumers/{name}/retry', 'consumers.test.ts'],
  ['POST /ops/consumers/{name}/forget', 'consumers.test.ts'],
  ['POST /ops/jobs/{id}/redrive', 'ops.test.ts'],
  ['GET /console/assets/{name}', 'console.test.ts'],
  ['GET /_dev/mail/{id}', 'inbox.test.ts'],
  ['GET /_dev/mail/{id}/html', 'inbox.test.ts'],
  ['GET /_dev/mail/{id}/text', 'inbox.test.ts'],
  ['GET /_dev/mail/{id}/attachments/{n}', 'inbox.test.ts'],
  ['GET /console/extension-files/{key}/{name}/{path}', 'console-extension-routes.test.ts'],
])
