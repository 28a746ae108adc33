import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Writes } from '../../../events/commit.ts'
import type { App } from '../../../http/http.ts'
import { Deleted, IdParams } from '../../../http/shapes.ts'
import { authRoutes, prepare } from '../auth/auth.ts'
import { CreatedKeyShape, createApiKey, KeysShape, listApiKeys, NewKeyBody, revokeApiKey } from './own-keys.ts'

/** A user's own API keys; never by means of one. They emit auth.key_created and auth.key_revoked. */
export function apiKeyRoutes(app: App, deps: Reads & Writes & CurrentCatalog): void {
  prepare(app)
  app.post('/auth/keys', createRoute, (request) => createApiKey(deps, request, request.body))
  app.get('/auth/keys', listRoute, (request) => listApiKeys(deps, request))
  app.delete('/auth/keys/:id', revokeRoute, (request) => revokeApiKey(deps, request, request.params.id))
}

const declared = authRoutes('API keys')

const createRoute = declared({
  summary: 'Make an API key',
  scope: 'none',
  description: 'The key is answered this one time.',
  body: NewKeyBody,
  response: { 200: CreatedKeyShape },
})
const listRoute = declared({ summary: 'List your API keys', scope: 'none', response: { 200: KeysShape } })
const revokeRoute = declared({
  summary: 'Revoke an API key',
  scope: 'none',
  params: IdParams,
  response: { 200: Deleted },
})
