import type { Caller } from '../../../access/principal.ts'
import { hasScope } from '../../../access/scopes.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { ToolCall, ToolDescription, ToolResult } from '../../../adapters/mcp.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import type { DeclaredRoute } from '../../../http/declared-routes.ts'
import { oncePer } from '../../../language/once.ts'
import { schemaOf } from '../openapi/openapi.ts'
import { readArguments } from './arguments.ts'
import { Refused, type RouteCall, type Tool } from './tool.ts'
import { tools } from './tools/tools.ts'

export type { RouteCall, Tool } from './tool.ts'
export { tools } from './tools/tools.ts'

/** A route's answer to a call of the process itself. */
type RouteAnswer = {
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
  /** Undefined where it was too long. */
  readonly text: string | undefined
}

export type CallLocally = (call: RouteCall, signal: AbortSignal) => Promise<RouteAnswer>

/** The facts that decide which tools a caller is offered. */
export type Offer = {
  readonly deps: Configuration & CurrentCatalog & Logs
  readonly caller: Caller
  readonly routes: readonly DeclaredRoute[]
  /** Groups that the client wants, of those that are on. */
  readonly groups: readonly string[]
}

/** The tools that a caller is offered, in the order of the table. */
export function offeredTools({ deps, caller, routes, groups }: Offer): readonly Tool[] {
  const { actions, loginTools } = deps.config.mcp
  const byName = routesByName(routes)
  return tools.filter((tool) => {
    if (!actions.includes(tool.group) || !groups.includes(tool.group) || (tool.isLogin && !loginTools)) return false
    return tool.routes.every((name) => isOpen(byName.get(name), caller)) && isGranted(deps, tool, caller)
  })
}

const routesByName = oncePer(
  (routes: readonly DeclaredRoute[]) => new Map(routes.map((route) => [`${route.method} ${route.url}`, route])),
)

/** A route that is switched off is nobody's. A client's token opens what its scope covers. */
function isOpen(route: DeclaredRoute | undefined, caller: Caller): boolean {
  const { admin, sessionId, userId } = caller
  if (route === undefined || !hasScope(caller.access, route.scope)) return false
  const { access } = route
  if (access.startsWith('admin') && !admin) return false
  if (access.endsWith('session') || access === 'leaving') return sessionId !== undefined
  return access === 'public' || userId !== undefined
}

function isGranted({ catalog }: CurrentCatalog, { needs }: Tool, { admin, access }: Caller): boolean {
  if (needs === undefined || admin) return true
  const { action, collection } = needs
  const { collections } = catalog.current()
  return (collection === undefined ? [...collections.keys()] : [collection]).some(
    (name) => access.grant(name, action) !== undefined,
  )
}

/** A tool as clients see it. */
export const describeTool = (tool: Tool, routes: readonly DeclaredRoute[]): ToolDescription =>
  descriptions(routes)(tool)

const descriptions = oncePer((routes: readonly DeclaredRoute[]) => oncePer((tool: Tool) => described(tool, routes)))

function described(tool: Tool, routes: readonly DeclaredRoute[]): ToolDescription {
  const { name, title, description, group, input, isDestructive } = tool
  const output = outputOf(tool, routes)
  return {
    name,
    title,
    description,
    inputSchema: schemaOf(input),
    ...(output !== undefined && { outputSchema: output }),
    annotations: {
      readOnlyHint: group === 'read',
      destructiveHint: isDestructive,
      idempotentHint: group !== 'create',
      openWorldHint: false,
    },
  }
}

/** That of its route, where it answers what the route does and the answer is an object. */
function outputOf({ output, routes: [first] }: Tool, routes: readonly DeclaredRoute[]): object | undefined {
  if (output !== undefined) return withoutProse(schemaOf(output))
  const { response = {} } = routes.find(({ method, url }) => `${method} ${url}` === first) ?? {}
  const schema = schemaOf(response[200] ?? response[201] ?? {})
  return schema.type === 'object' ? withoutProse(schema) : undefined
}

/** A model reads every list of tools as a whole; what an answer means, the answer shows. */
function withoutProse(schema: object): object {
  const isProse = (name: string, value: unknown) =>
    (name === 'description' && typeof value === 'string') || (name === 'examples' && Array.isArray(value))
  return JSON.parse(JSON.stringify(schema, (name, value) => (isProse(name, value) ? undefined : value)))
}

/** Runs tools for one caller. */
export type ToolRun = {
  readonly offer: Offer
  /** The program that acts, where it names itself outside of the protocol. */
  readonly agent: string | undefined
  readonly callLocally: CallLocally
}

/** Calls a tool; undefined where the caller has none of that name. */
export function callTool(
  run: ToolRun,
  call: ToolCall,
  known = offeredTools(run.offer),
): Promise<ToolResult> | undefined {
  const tool = known.find(({ name }) => name === call.name)
  return tool === undefined ? undefined : runTool(run, tool, call)
}

async function runTool({ offer, agent, callLocally }: ToolRun, tool: Tool, call: ToolCall): Promise<ToolResult> {
  const requests: string[] = []
  const by = agentHeader(agent ?? call.client, tool.name)
  try {
    const args = readArguments(tool.input, call.arguments)
    const value = await tool.run(args, async (route, input) => {
      const answer = await callLocally({ ...input, route, agent: by }, call.signal)
      requests.push(String(answer.headers['x-log-request-id'] ?? answer.headers['x-request-id']))
      return bodyOf(answer)
    })
    return { value, isRefused: false, ...(tool.group !== 'read' && { meta: { 'daybook/requestIds': requests } }) }
  } catch (error) {
    return refused(offer.deps, error)
  }
}

/** The result of a call that was refused or failed. */
export const refused = (deps: Logs, error: unknown): ToolResult => ({ value: refusalOf(deps, error), isRefused: true })

/** The header by which routes know the program that acts. Names of clients are anything. */
function agentHeader(client: string | undefined, tool: string): string {
  const name = (client ?? '')
    .replaceAll(/[^\w .,@/:+()-]+/g, ' ')
    .trim()
    .slice(0, 100)
    .trim()
  return `${name === '' ? 'mcp' : name}; tool=${tool}`
}

function bodyOf({ status, text }: RouteAnswer): Readonly<Record<string, unknown>> {
  if (text === undefined) throw tooLong
  const value: unknown = text === '' ? { success: true } : JSON.parse(text)
  const answer = value !== null && typeof value === 'object' && !Array.isArray(value) ? value : { data: value }
  if (status >= 400) throw new Refused(status, answer as Readonly<Record<string, unknown>>)
  return answer as Readonly<Record<string, unknown>>
}

const tooLong = new AppError(413, 'The answer is too long: ask for fewer rows (limit) or fewer fields', {
  code: 'RESULT_TOO_LONG',
})

/** As routes say it, so that a program knows one form of refusal. */
function refusalOf({ log }: Logs, error: unknown): Readonly<Record<string, unknown>> {
  if (error instanceof Refused) return error.body
  if (error instanceof AppError) {
    const { message, code, details = null, status: statusCode } = error
    return { error: { message, code, details, statusCode } }
  }
  log.error({ err: error }, 'a tool failed')
  return { error: { message: 'Internal server error', code: 'INTERNAL_SERVER_ERROR', details: null, statusCode: 500 } }
}
