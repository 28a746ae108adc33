import { Type } from '../../../adapters/typebox.ts'
import type { App } from '../../../http/http.ts'
import { Id, Moment, NullableText, Said, Text } from '../../../http/shapes.ts'
import { type AuthWrites, authRoutes, prepare } from '../auth/auth.ts'
import { readPreview, startPreview, stopPreview } from './preview.ts'

/** Administrators with a session. Emits auth.preview_started. */
export function previewAdminRoutes(app: App, deps: AuthWrites): void {
  prepare(app)
  app.post('/auth/preview', startRoute, async (request) => ({
    preview: await startPreview(deps, request, request.body),
  }))
}

/**
 * Open to every session that has begun a preview: an administrator who loses the role must not be caught in it. Emits
 * auth.preview_stopped.
 */
export function previewRoutes(app: App, deps: AuthWrites): void {
  prepare(app)
  app.get('/auth/preview', readRoute, async (request) => ({ preview: (await readPreview(deps, request)) ?? null }))
  app.delete('/auth/preview', stopRoute, async (request) => {
    await stopPreview(deps, request)
    return { message: 'Preview stopped' }
  })
}

const declared = authRoutes('Sessions')
const asOwner = { config: { inPreview: 'as owner' } } as const

const NullableNamed = Type.Union([Type.Object({ id: Id(), name: Text('editor') }), Type.Null()])
const Preview = Type.Object({
  startedAt: Moment(),
  user: Type.Union([
    Type.Object({ id: Id(), email: NullableText('ada@example.com'), firstName: Text('Ada') }),
    Type.Null(),
  ]),
  role: NullableNamed,
  tenant: NullableNamed,
})

const PreviewBody = Type.Object({
  user: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'The id of a user.' })),
  role: Type.Optional(Text('user', { description: 'Instead: the id or name of a role.' })),
  tenant: Type.Optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'Where; the first one without.' })),
})

const startRoute = declared(
  {
    summary: 'See as somebody else',
    scope: 'none',
    description:
      'Until it is stopped or the session ends, everything that comes with the session (requests, sockets, tools) reads with the rights of the user or role, and can change nothing: 403 `PREVIEW_READ_ONLY`.',
    body: PreviewBody,
    response: { 200: Type.Object({ preview: Preview }) },
  },
  asOwner,
)
const readRoute = declared(
  {
    summary: 'Read whose view your session shows',
    scope: 'none',
    response: { 200: Type.Object({ preview: Type.Union([Preview, Type.Null()]) }) },
  },
  asOwner,
)
const stopRoute = declared(
  { summary: 'See as yourself again', scope: 'none', response: { 200: Said('Preview stopped') } },
  asOwner,
)
