import type { Static } from 'typebox'
import { TemplateError } from '../../../adapters/liquid.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import type { App } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import { IdParams, Text } from '../../../http/shapes.ts'
import { isUuid } from '../../../language/text.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { commonVariableNames as commonVariables, defaultTemplate, templateTypes } from './built-in.ts'
import type { MailRenderer, RenderedMail } from './renderer.ts'
import { type LogoReads, longestCell, sampleVariables, templateById, withEmbeddedLogo } from './templates.ts'

/** Routes for an editor of templates. */
export function templateRoutes(app: App, _deps: object): void {
  app.get('/templates/types', typesRoute, async () => ({ data: { types: templateTypes, commonVariables } }))
}

/** The built-in texts and what stored ones look like, for administrators. */
export function templateAdminRoutes(app: App, deps: TemplateReads): void {
  app.get('/templates/defaults', defaultsRoute, async () => {
    const templates = templateTypes.flatMap(({ type }) => defaultTemplate(type) ?? [])
    return { data: { templates, commonVariables } }
  })
  app.get('/templates/default/:type', defaultRoute, async ({ params }, reply) => {
    const found = defaultTemplate(params.type)
    if (found === undefined) return reply.code(404).send({ data: null, message: 'There is no such built-in template' })
    return { data: { ...found, commonVariables } }
  })
  app.post('/templates/:id/preview', previewRoute, async ({ params, body }) => ({
    data: await previewTemplate(deps, params.id, body),
  }))
}

const declared = routesOf('Templates')

const TypeInfoShape = Type.Object({
  type: Text('invite'),
  label: Text('Invitation'),
  description: Text('Invites to a tenant'),
  variables: Type.Array(Text('inviteLink'), { description: 'Besides the common ones; dots lead into objects.' }),
})
const TemplateShape = Type.Object({
  ...TypeInfoShape.properties,
  subject: Text('Join {{ tenant.name }}'),
  body: Text('<p><a href="{{ inviteLink }}">Join {{ tenant.name }}</a></p>'),
})
const commonVariablesShape = Type.Array(Text('project_name'))

const typesRoute = declared({
  summary: 'List the types of mail templates and their variables',
  scope: 'read',
  response: {
    200: Type.Object({
      data: Type.Object({ types: Type.Array(TypeInfoShape), commonVariables: commonVariablesShape }),
    }),
  },
})

const defaultsRoute = declared({
  summary: 'List the built-in mail templates',
  scope: 'read',
  response: {
    200: Type.Object({
      data: Type.Object({ templates: Type.Array(TemplateShape), commonVariables: commonVariablesShape }),
    }),
  },
})

const defaultRoute = declared({
  summary: 'Read a built-in mail template',
  scope: 'read',
  params: Type.Object({ type: Text('invite') }),
  response: {
    200: Type.Object({ data: Type.Object({ ...TemplateShape.properties, commonVariables: commonVariablesShape }) }),
    404: Type.Object({ data: Type.Null(), message: Text('There is no such built-in template') }),
  },
  sendsText: true,
})

const previewRoute = declared({
  summary: 'Render a stored mail template with sample data',
  description:
    'Subject and body of the request stand in place of the stored ones, so that an editor shows what it has yet to save.',
  scope: 'admin',
  params: IdParams,
  body: Type.Object({
    subject: Type.Optional(Type.String({ maxLength: longestCell.subject, examples: ['Join {{ tenant.name }}'] })),
    body: Type.Optional(Type.String({ maxLength: longestCell.body, examples: ['<p>Join {{ tenant.name }}</p>'] })),
    data: Type.Optional(
      Type.Record(Type.String(), Type.Unknown(), {
        description: 'Replaces what it names of the sample data.',
        examples: [{ name: 'Ada' }],
        refusal: 'data must be an object',
      }),
    ),
  }),
  response: {
    200: Type.Object({
      data: Type.Object({ subject: Text('Join Acme'), html: Text('<p>Join Acme</p>'), text: Text('Join Acme') }),
    }),
  },
})

/**
 * A stored template as a real mail: the settings of its tenant, sample data, and `data` in place of what it
 * names; `subject` and `body` in place of the stored ones. For a browser: the logo is in the HTML.
 *
 * @throws {AppError} 404 for an unknown template; 400 when it cannot be rendered
 */
async function previewTemplate(
  deps: TemplateReads,
  id: string,
  { data = {}, ...unsaved }: Static<typeof previewRoute.schema.body>,
): Promise<RenderedMail> {
  const stored = isUuid(id) ? await templateById(deps.db, id) : undefined
  if (stored === undefined) throw new AppError(404, 'Template not found')
  const { subject: ownSubject, body: ownBody } = stored
  const template = { subject: unsaved.subject ?? ownSubject, body: unsaved.body ?? ownBody }
  const variables = sampleVariables(deps, stored.type, stored.tenantId ?? undefined, data)
  const { subject, html, text } = await deps.renderer.render({ template, variables }).catch(explain)
  return { subject, html: await withEmbeddedLogo(deps, html, stored.tenantId ?? undefined), text }
}

function explain(error: unknown): never {
  if (error instanceof TemplateError)
    throw new AppError(400, 'The template cannot be rendered', { details: error.message })
  throw error
}

/** The capabilities that reads of this folder need. */
type TemplateReads = Reads & Clock & CurrentSettings & LogoReads & MailRenderer
