import { Type } from '../../../adapters/typebox.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Writes } from '../../../events/commit.ts'
import type { App } from '../../../http/http.ts'
import { Text } from '../../../http/shapes.ts'
import { authRoute, prepare } from '../auth/auth.ts'
import {
  CreatedKeyShape,
  createApiKey,
  DeletedShape,
  KeysShape,
  listApiKeys,
  NewKeyBody,
  revokeApiKey,
} from './own-keys.ts'

/** A user's own API keys; never by means of one. They emit auth.key_created and auth.key_revoked. */
export function apiKeyRoutes(app: App, rt: Reads & Writes & CurrentCatalog): void {
  prepare(app)
  app.post('/auth/keys', createRoute, (request) => createApiKey(rt, request, request.body))
  app.get('/auth/keys', listRoute, (request) => listApiKeys(rt, request))
  app.delete('/auth/keys/:id', revokeRoute, (request) => revokeApiKey(rt, request, request.params.id))
}

const tag = 'API keys'

const createRoute = authRoute({
  summary: 'Make an API key',
  scope: 'none',
  description: 'The key is answered this one time.',
  tag,
  body: NewKeyBody,
  response: { 200: CreatedKeyShape },
})
const listRoute = authRoute({ summary: 'List your API keys', tag, scope: 'none', response: { 200: KeysShape } })
const revokeRoute = authRoute({
  summary: 'Revoke an API key',
  scope: 'none',
  tag,
  params: Type.Object({ id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44') }),
  response: { 200: DeletedShape },
})
