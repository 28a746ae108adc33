import type { Static, TObject, TProperties, TSchema } from 'typebox'
import { Type } from '../../../adapters/typebox.ts'
import type { Config } from '../../../config/config.ts'
import type { Action } from '../../../errors.ts'
import { Text } from '../../../http/shapes.ts'

/** A group of tools, which MCP_ENABLED_ACTIONS switches. */
type ToolGroup = Config['mcp']['actions'][number]

/** The parts of a request to a route. */
export type RouteInput = {
  readonly params?: Readonly<Record<string, string | number>>
  /** Members that are undefined are left out; objects are sent as JSON. */
  readonly query?: Readonly<Record<string, unknown>>
  readonly body?: unknown
  /** Instead of the caller's credential. */
  readonly token?: string
}

/** A call of a route in the name of the caller of a tool, by this program. */
export type RouteCall = RouteInput & { readonly route: string; readonly agent: string }

export type ToolAnswer = Readonly<Record<string, unknown>>

/** Calls one of the routes that a tool names; throws {@link Refused} where the route refuses. */
export type CallRoute = (route: string, input: RouteInput) => Promise<ToolAnswer>

/** A route has refused: its status and body. */
export class Refused extends Error {
  readonly status: number
  readonly body: ToolAnswer

  constructor(status: number, body: ToolAnswer) {
    super('refused')
    this.status = status
    this.body = body
  }
}

export type Tool = {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly group: ToolGroup
  readonly input: TObject
  /** The shape of its answer; by default that of its route. */
  readonly output?: TObject
  /** The routes that it calls, as `METHOD /path`: callers who may call them may call the tool, and no others. */
  readonly routes: readonly string[]
  /** An action on a collection, or on any where none is named: it is offered to those who were granted it. */
  readonly needs?: { readonly action: Action; readonly collection?: string }
  /** Its routes refuse everybody without multi-tenant mode. */
  readonly needsTenants: boolean
  /** Removes or overwrites something. */
  readonly isDestructive: boolean
  /** Puts tokens into the context of a model: offered with MCP_LOGIN_TOOLS only. */
  readonly isLogin: boolean
  readonly run: (args: ToolAnswer, call: CallRoute) => Promise<ToolAnswer>
}

type Common<Members extends TProperties> = {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly group: ToolGroup
  readonly input: Members
  readonly output?: TObject
  readonly needs?: Tool['needs']
  readonly needsTenants?: boolean
  /** As its group says unless given: reading and creating destroy nothing. */
  readonly isDestructive?: boolean
  readonly isLogin?: boolean
}

/** Most tools are a route under another name, with its input in another order. */
type OfOneRoute<Members extends TProperties> = Common<Members> & {
  readonly route: string
  readonly call: (args: Static<TObject<Members>>) => RouteInput
  /** Makes the tool's answer from the route's. */
  readonly answer?: (answer: ToolAnswer, args: Static<TObject<Members>>) => ToolAnswer
}

type OfSome<Members extends TProperties> = Common<Members> & {
  readonly routes: readonly string[]
  readonly run: (args: Static<TObject<Members>>, call: CallRoute) => Promise<ToolAnswer>
}

/** An entry of the table of tools. */
export function tool<Members extends TProperties>(declared: OfOneRoute<Members> | OfSome<Members>): Tool {
  const {
    name,
    title,
    description,
    group,
    input,
    output,
    needs,
    isDestructive,
    isLogin = false,
    needsTenants = false,
  } = declared
  return {
    name,
    title,
    description,
    group,
    input: argumentsShape(input),
    ...(output !== undefined && { output }),
    routes: 'route' in declared ? [declared.route] : declared.routes,
    ...(needs !== undefined && { needs }),
    needsTenants,
    isDestructive: isDestructive ?? (group === 'update' || group === 'delete'),
    isLogin,
    run: ('route' in declared ? ofOneRoute(declared) : declared.run) as Tool['run'],
  }
}

/** Readers always find arguments with a default, and callers need not give them. */
export function argumentsShape<Members extends TProperties>(members: Members): TObject<Members> {
  const required = Object.keys(members).filter((name) => {
    const member = members[name] as TSchema & { readonly default?: unknown }
    return member.default === undefined && !('~optional' in member)
  })
  return Type.Object(members, { additionalProperties: false, required })
}

function ofOneRoute<Members extends TProperties>({ route, call, answer = (same) => same }: OfOneRoute<Members>) {
  return async (args: Static<TObject<Members>>, callRoute: CallRoute) =>
    answer(await callRoute(route, call(args)), args)
}

/* Arguments that several tools have. */

export const optional = <Shape extends TSchema>(shape: Shape) => Type.Optional(shape)

export const Collection = Text('product', { minLength: 1, description: 'The name of a collection.' })

const wholeNumbers = { minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER }

/** Ids are never guessed, and never a pattern: a tool changes what it is told to. A longer number may have been another one. */
export const ItemId = Type.Union([Type.String({ minLength: 1 }), Type.Integer(wholeNumbers)], {
  description: 'The primary key of the item.',
  examples: ['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'],
})

export const RowId = (what: string) =>
  Type.String({
    minLength: 1,
    description: `The id of the ${what}.`,
    examples: ['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'],
  })

export const Members = (description: string, example: object) =>
  Type.Record(Type.String(), Type.Unknown(), { description, examples: [example] })

export const Page = Type.Integer({ minimum: 1, default: 1, description: 'The page, from 1.' })

export const Limit = Type.Integer({
  minimum: 1,
  maximum: 100,
  default: 10,
  description: 'How many at most, up to 100.',
})

export const Cursor = Text('eyJ2IjoxfQ', { description: 'The `nextCursor` of the page before; instead of `page`.' })

export const Fields = Type.Union([Type.Array(Type.String()), Type.String()], {
  description:
    'The fields and relations to answer, e.g. ["name", "maker.name"] or "name,maker.name". All fields unless given.',
  examples: [['name', 'maker.name']],
})

export const SearchFields = Type.Union([Type.Array(Type.String()), Type.String()], {
  description: 'Where the words are looked for. All texts unless given.',
  examples: [['name', 'description']],
})

export const Filter = Members('Which rows, e.g. {"price": {"lt": 100}, "maker.name": "Babbage"}.', {
  price: { lt: 100 },
})

export const Sort = Text('name:asc', { description: '`field:asc` or `field:desc`, several by commas.' })

/** `a:desc,b` as routes of lists have it: `-a,b`. */
export const sortText = (sort: string | undefined): string | undefined =>
  sort
    ?.split(',')
    .map((part) =>
      part
        .trim()
        .replace(/^(.*):(asc|desc)$/i, (_all, field: string, way: string) => `${/desc/i.test(way) ? '-' : ''}${field}`),
    )
    .join(',')

export const listText = (list: readonly string[] | string | undefined): string | undefined =>
  typeof list === 'object' ? list.join(',') : list

type Paged = { readonly page?: number; readonly limit?: number; readonly cursor?: string }

/** Pages by cursor where one is given, else by number. */
export const paging = ({ page, limit, cursor }: Paged) => ({ limit, ...(cursor === undefined ? { page } : { cursor }) })

/** The input of tools that list rows by filter; some have a `cursor` besides. */
export const filtered = { filter: optional(Filter), sort: optional(Sort), page: Page, limit: Limit }

type Filtered = Paged & { readonly filter?: object; readonly sort?: string }

/** As the routes of lists have it. */
export const filteredQuery = ({ filter, sort, ...page }: Filtered) => ({
  filter,
  sort: sortText(sort),
  ...paging(page),
})
