import type { App } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { answers, prepare } from '../auth/routes.ts'
import { createApiKey, listApiKeys, revokeApiKey } from './api-keys.ts'
import { CreatedKeyShape, DeletedShape, KeysShape } from './schema.ts'

/** A user's own API keys; never by means of one. They emit auth.key_created and auth.key_revoked. */
export function apiKeyRoutes(app: App, rt: Runtime): void {
  prepare(app)
  app.post('/auth/keys', answers(CreatedKeyShape), (request) => createApiKey(rt, request))
  app.get('/auth/keys', answers(KeysShape), (request) => listApiKeys(rt, request))
  app.delete<{ Params: { id: string } }>('/auth/keys/:id', answers(DeletedShape), (request) =>
    revokeApiKey(rt, request, request.params.id),
  )
}
