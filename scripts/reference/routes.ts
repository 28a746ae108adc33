import Fastify from 'fastify'
import type { TSchema } from 'typebox'
import type { WebWrites } from '../../src/api/capabilities.ts'
import { registerRoutes } from '../../src/api/routes.ts'
import { parseConfig } from '../../src/config/config.ts'
import { pathOf } from '../../src/features/operations/openapi/openapi.ts'
import type { App } from '../../src/http/http.ts'
import { chapters, type DeclaredRoute, declaredRoutes, type Tag } from '../../src/http/route.ts'
import { exampleOf } from './example.ts'
import { type Example, exampleOfRoute } from './examples/examples.ts'
import { cell, json, jsonLines, type Page, page, table } from './markdown.ts'

/** Every part of the platform that has routes is on. */
const variables = {
  DATABASE_URL: 'postgres://nobody@127.0.0.1/none',
  SECRET_KEY: 'of no worth: nothing is signed by it',
  NODE_ENV: 'development',
  MCP_ENABLED: 'true',
}

/** The routes of the platform as they declare themselves. Nothing is started: registering asks for the configuration only. */
export async function platformRoutes(): Promise<readonly DeclaredRoute[]> {
  const config = parseConfig(variables, { requireDatabase: true })
  const app = Fastify() as unknown as App
  const declared = declaredRoutes(app)
  registerRoutes(app, new Proxy({ config }, { get: answerOrNothing }) as unknown as WebWrites, undefined, {
    endpoints: [],
    consoles: [],
  })
  await app.ready()
  await app.close()
  return declared().filter(({ summary }) => summary !== undefined)
}

/** Every other capability of the process may be passed on and called, and does nothing. */
function answerOrNothing(known: object, name: string | symbol): unknown {
  return name in known ? known[name as keyof typeof known] : nothing
}

const nothing: unknown = new Proxy(() => undefined, {
  get: (_target, name) => (name === Symbol.toPrimitive || name === 'then' ? undefined : nothing),
  apply: () => nothing,
})

/** The callers of routes of a class. */
export const callers = {
  public: 'anybody',
  bearer: 'a session or an API key',
  session: 'a session',
  leaving: 'a session, also one that has just ended',
  admin: 'an administrator, by a session or an API key',
  'admin session': 'an administrator, by a session',
} as const

/** A page per chapter, and the list of them all. */
export function routePages(routes: readonly DeclaredRoute[]): readonly Page[] {
  const chapters = Map.groupBy(routes, ({ tags = [] }) => tags[0] ?? 'Other')
  const pages = [...chapters].map(([name, chapter]) => chapterPage(name, chapter))
  const rows = [...chapters].flatMap(([name, chapter]) =>
    chapter.map((route) => [link(name, route), cell(route.summary ?? ''), callers[route.access], scopeOf(route)]),
  )
  const overview = [
    'Every route of the platform. The running server describes itself, with the fields of your collections, by',
    '`GET /openapi` and on the page `/docs` ([openapi.md](../openapi.md)). The requests on these pages are sent by a test;',
    '`{{name}}` in them stands for what an earlier answer gave, such as the id of an item or a token.',
    '',
    ...table(['route', 'what it does', 'who may call it', 'scope of a token'], rows),
  ]
  return [page('routes', 'Routes', 'the declarations of routes', overview), ...pages]
}

/** No token opens routes that need a session. */
const scopeOf = ({ access, scope }: DeclaredRoute) =>
  /session|leaving/.test(access) ? '' : scope === 'none' ? 'any' : `\`${scope}\``

const fileOf = (chapter: string) => `routes-${chapter.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`
const titleOf = ({ method, url }: DeclaredRoute) => `${method} ${pathOf(url)}`
const link = (chapter: string, route: DeclaredRoute) =>
  `[\`${titleOf(route)}\`](${fileOf(chapter)}.md#${anchorOf(titleOf(route))})`
const anchorOf = (title: string) =>
  title
    .toLowerCase()
    .replaceAll(/[^\w\s-]/g, '')
    .replaceAll(' ', '-')

function chapterPage(name: string, routes: readonly DeclaredRoute[]): Page {
  const lines = [
    `${chapters[name as Tag]} Refusals and their codes: [errors.md](errors.md).`,
    '',
    ...routes.flatMap(routeSection),
  ]
  return page(fileOf(name), `Routes: ${name}`, 'the declarations of routes', lines)
}

function routeSection(route: DeclaredRoute): string[] {
  const { summary, description, access, scope, params, querystring, body, response = {} } = route
  const needs = scope === 'none' ? '' : ` A program's token needs the scope \`${scope}\`.`
  // What refusals look like is said once, for all routes.
  const answers = Object.entries(response).filter(([, shape]) => shape !== response['4xx'])
  const tried = exampleOfRoute.get(titleOf(route))
  return [
    `## ${titleOf(route)}`,
    '',
    `${summary}. For ${callers[access]}.${needs}${description === undefined ? '' : ` ${description}`}`,
    '',
    ...members('in the path', params),
    ...members('parameter', querystring),
    ...(body === undefined ? [] : members('in the body', body)),
    ...(tried !== undefined ? request(tried) : body === undefined ? [] : example('Body, e.g.', body)),
    ...answers.flatMap(([status, shape]) => answer(status, shape)),
  ]
}

type Shape = {
  readonly properties?: Readonly<Record<string, Shape>>
  readonly required?: readonly string[]
  readonly type?: string | readonly string[]
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly Shape[]
  readonly items?: Shape
  readonly const?: unknown
  readonly default?: unknown
  readonly format?: string
  readonly description?: string
  readonly contentMediaType?: string
  readonly content?: Readonly<Record<string, unknown>>
  readonly contentSchema?: Shape
  readonly examples?: readonly unknown[]
}

/** A table of the members of a shape; nothing where it has none. */
export function members(title: string, schema: TSchema | undefined): string[] {
  const { properties = {}, required = [] } = (schema ?? {}) as Shape
  const rows = Object.entries(properties).map(([name, member]) => [
    `\`${name}\``,
    typeOf(member),
    required.includes(name) ? 'yes' : '',
    cell([member.description, defaultOf(member), exampleIn(member)].filter((text) => text !== undefined).join(' ')),
  ])
  return rows.length === 0 ? [] : [...table([title, 'type', 'needed', 'meaning'], rows), '']
}

/** Of texts, numbers and lists of names the example that they have; of everything else the example of the whole says it. */
function exampleIn({ type, items, examples: [first] = [] }: Shape): string | undefined {
  const isName = type === 'string' || type === 'integer' || (type === 'array' && items?.type === 'string')
  return isName && first !== undefined && String(first) !== '' ? `E.g. \`${first}\`.` : undefined
}

const defaultOf = (shape: Shape) =>
  shape.default === undefined ? undefined : `Default \`${JSON.stringify(shape.default)}\`.`

function typeOf({ type, enum: words, anyOf, items, const: only, format, contentSchema }: Shape): string {
  if (contentSchema !== undefined) return 'JSON'

  if (words !== undefined) return words.map((word) => `\`${word}\``).join(', ')
  if (only !== undefined) return `\`${JSON.stringify(only)}\``
  if (anyOf !== undefined) return [...new Set(anyOf.map(typeOf))].join(' or ')
  if (items !== undefined) return `list of ${typeOf(items)}`
  const name = type === undefined ? 'any' : [type].flat().join(' or ')
  return format === undefined ? name : `${name} (${format})`
}

function example(title: string, schema: TSchema): string[] {
  const { contentMediaType = 'application/json', content } = schema as Shape
  const types = content === undefined ? [contentMediaType] : Object.keys(content)
  if (types.join() !== 'application/json')
    return [`${title.replace(', e.g.', '')}: ${types.map((type) => `\`${type}\``).join(' or ')}.`, '']
  return [title, '', ...json(exampleOf(schema)), '']
}

/** A request that a test sends. */
function request({ route, path, body, form, text, headers = {}, as, status = 200 }: Example): string[] {
  const [method = '', url = ''] = route.split(' ')
  const sent = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  const parts = Object.entries(form ?? {}).map(([name, part]) =>
    typeof part === 'string' ? `${name}: ${part}` : `${name}: ${part[0]}: ${part[1].trimEnd()}`,
  )
  const payload = body !== undefined ? jsonLines(body) : text !== undefined ? [text] : parts
  return [
    '```http',
    `${method} ${path ?? url}`,
    ...(as === 'nobody' ? [] : ['authorization: Bearer {{token}}']),
    ...(body === undefined ? [] : ['content-type: application/json']),
    ...(form === undefined ? [] : ['content-type: multipart/form-data']),
    ...sent,
    ...(payload.length === 0 ? [] : ['', ...payload]),
    '',
    `HTTP/1.1 ${status}`,
    '```',
    '',
  ]
}

function answer(status: string, schema: TSchema): string[] {
  const { type } = schema as Shape
  return type === 'null' ? [`**${status}** without a body.`, ''] : example(`**${status}**, e.g.`, schema)
}
