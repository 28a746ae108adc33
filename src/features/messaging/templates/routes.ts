import { Type } from 'typebox'
import type { App } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Text } from '../../../http/shapes.ts'
import type { TemplateReads } from './capabilities.ts'
import { previewTemplate } from './preview.ts'
import { commonVariableNames as commonVariables, defaultTemplate, templateTypes } from './types.ts'

/** What an editor of templates offers. */
export function templateRoutes(app: App, _rt: object): void {
  app.get('/templates/types', typesRoute, async () => ({ data: { types: templateTypes, commonVariables } }))
}

/** The built-in texts and what stored ones look like, for administrators. */
export function templateAdminRoutes(app: App, rt: TemplateReads): void {
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
    data: await previewTemplate(rt, params.id, body.data ?? {}),
  }))
}

const tag = 'Templates'

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

const typesRoute = route({
  summary: 'List the types of mail templates and their variables',
  tag,
  response: {
    200: Type.Object({
      data: Type.Object({ types: Type.Array(TypeInfoShape), commonVariables: commonVariablesShape }),
    }),
  },
})

const defaultsRoute = route({
  summary: 'List the built-in mail templates',
  tag,
  response: {
    200: Type.Object({
      data: Type.Object({ templates: Type.Array(TemplateShape), commonVariables: commonVariablesShape }),
    }),
  },
})

const defaultRoute = route({
  summary: 'Read a built-in mail template',
  tag,
  params: Type.Object({ type: Text('invite') }),
  response: {
    200: Type.Object({ data: Type.Object({ ...TemplateShape.properties, commonVariables: commonVariablesShape }) }),
    404: Type.Object({ data: Type.Null(), message: Text('There is no such built-in template') }),
  },
  sendsText: true,
})

const previewRoute = route({
  summary: 'Render a stored mail template with sample data',
  tag,
  params: Type.Object({ id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44') }),
  body: Type.Object({
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
