import type { CallToolResult, McpHttpHandler, ServerContext, ServerEvent } from '@modelcontextprotocol/server'

/** A tool as clients see it. Shapes are JSON Schema. */
export type ToolDescription = {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly inputSchema: object
  readonly outputSchema?: object
  readonly annotations: {
    readonly readOnlyHint: boolean
    readonly destructiveHint: boolean
    readonly idempotentHint: boolean
    readonly openWorldHint: boolean
  }
}

/** The result of a call: a value, or the reason of its refusal. */
export type ToolResult = {
  readonly value: Readonly<Record<string, unknown>>
  readonly isRefused: boolean
  /** For programs, beside the value. */
  readonly meta?: Readonly<Record<string, unknown>>
}

export type ToolCall = {
  readonly name: string
  readonly arguments: unknown
  /** The client's own name; only clients of the newer protocol send it with every request. */
  readonly client: string | undefined
  /** Aborts when the client cancels the call or is gone. */
  readonly signal: AbortSignal
}

/** The tools of one caller. */
export type Toolbox = {
  readonly server: { readonly name: string; readonly title: string; readonly version: string }
  /** The instructions that a model gets before it sees any tool. */
  readonly instructions: string
  list(): readonly ToolDescription[]
  /** Undefined where there is no such tool. */
  call(call: ToolCall): Promise<ToolResult> | undefined
}

/** How a request for tools is answered. */
type McpOptions = {
  /** Called for a client that listens; gives the way to forget it. */
  readonly onListen: (client: ListeningClient) => () => void
  /** The client takes plain JSON alone, so no stream of events. */
  readonly plainJson: boolean
  readonly onError: (error: Error) => void
}

export type ListeningClient = {
  /** Its tools have changed. */
  readonly tellOfChange: () => void
  /** Ends its answer as a server that is done with it does. */
  readonly end: () => void
}

const progressEveryMs = 1000

/**
 * Answers a request of a client of the Model Context Protocol, of the generation with a handshake (2025) or the one without
 * (2026-07-28): each by itself, no session. `body` is what `request` holds as JSON.
 */
export async function answerMcp(
  request: Request,
  body: unknown,
  toolbox: Toolbox,
  { onListen, plainJson, onError }: McpOptions,
): Promise<Response> {
  // Loaded by the first client.
  const { createMcpHandler } = await import('@modelcontextprotocol/server')
  const refusal = await refusalOf(body)
  if (refusal !== undefined) return refusal
  const bus = {
    publish: () => undefined,
    subscribe: (listener: (event: ServerEvent) => void) =>
      onListen({ tellOfChange: () => listener({ kind: 'tools_list_changed' }), end: () => void handler.close() }),
  }
  const handler: McpHttpHandler = createMcpHandler(({ era }) => serverOf(toolbox, era), { bus, onerror: onError })
  const response = await handler.fetch(request, body === undefined ? {} : { parsedBody: withoutCancelled(body) })
  return plainJson && !isListening(body) ? withoutStream(response, Array.isArray(body)) : response
}

/** Whether a client wants to hear of changes for as long as the answer lasts. */
export const isListening = (body: unknown): boolean =>
  (body as { method?: unknown } | null | undefined)?.method === 'subscriptions/listen'

type Message = { readonly id?: unknown; readonly method?: unknown; readonly params?: { readonly requestId?: unknown } }

const isMessage = (message: unknown): message is Message => message !== null && typeof message === 'object'

/** Refuses what the library would answer with a dump of its validator, or not at all. */
async function refusalOf(body: unknown): Promise<Response | undefined> {
  const { ProtocolErrorCode, specTypeSchemas } = await import('@modelcontextprotocol/server')
  const refused = (code: number, message: string, id: unknown = null) =>
    Response.json({ jsonrpc: '2.0', id, error: { code, message } }, { status: 400 })
  // Answers are matched to calls by id: of two calls with one id the client could not read both.
  if (Array.isArray(body))
    return hasSameIds(body)
      ? refused(ProtocolErrorCode.InvalidRequest, 'Invalid Request: two requests of the batch have the same id')
      : undefined
  if (!isMessage(body) || (typeof body.id !== 'string' && typeof body.id !== 'number')) return undefined
  const shapes = { initialize: specTypeSchemas.InitializeRequest, 'tools/call': specTypeSchemas.CallToolRequest }
  const { method, id } = body
  if (method !== 'initialize' && method !== 'tools/call') return undefined
  const [issue] = shapes[method]['~standard'].validate(body).issues ?? []
  if (issue === undefined) return undefined
  const path = (issue.path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
  return refused(ProtocolErrorCode.InvalidParams, `Invalid params for ${method}: ${path}: ${issue.message}`, id)
}

function hasSameIds(batch: readonly unknown[]): boolean {
  const ids = batch
    .filter(isMessage)
    .flatMap(({ id, method }) => (id === undefined || method === undefined ? [] : [id]))
  return new Set(ids).size < ids.length
}

/**
 * Without the calls that the same batch cancels later: a cancelled call gets no answer, and the library would keep the stream
 * open for it.
 */
function withoutCancelled(body: unknown): unknown {
  if (!Array.isArray(body)) return body
  const cancelledAt = new Map(
    body.flatMap((message, at) =>
      isMessage(message) && message.method === 'notifications/cancelled' ? [[message.params?.requestId, at]] : [],
    ),
  )
  return body.filter(
    (message, at) => !isMessage(message) || message.id === undefined || (cancelledAt.get(message.id) ?? -1) < at,
  )
}

async function serverOf(toolbox: Toolbox, era: 'legacy' | 'modern') {
  const { Server, ProtocolError, ProtocolErrorCode } = await import('@modelcontextprotocol/server')
  const { server: about, instructions } = toolbox
  // Only clients without a handshake can listen.
  const tools = era === 'modern' ? { listChanged: true } : {}
  const server = new Server(about, { capabilities: { tools }, instructions })
  server.setRequestHandler('tools/list', ({ params }) => {
    if (params?.cursor !== undefined) throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'The list has one page')
    return { tools: toolbox.list() as never }
  })
  server.setRequestHandler('tools/call', async ({ params }, { mcpReq }) => {
    const { signal, envelope } = mcpReq
    const called = toolbox.call({ name: params.name, arguments: params.arguments, client: clientOf(envelope), signal })
    if (called === undefined) throw new ProtocolError(ProtocolErrorCode.InvalidParams, `Unknown tool: ${params.name}`)
    return resultOf(await withProgress(called, mcpReq))
  })
  return server
}

/** The name that a client gives itself with each request. */
function clientOf(envelope: object | undefined): string | undefined {
  const about = (envelope as Readonly<Record<string, { readonly name?: unknown } | undefined>> | undefined)?.[
    clientInfo
  ]
  return typeof about?.name === 'string' ? about.name : undefined
}

const clientInfo = 'io.modelcontextprotocol/clientInfo'

/** A refusal is text only: clients hold `structuredContent` against the shape of what the tool answers, and fail with that. */
function resultOf({ value, isRefused, meta }: ToolResult): CallToolResult {
  return {
    content: [{ type: 'text', text: JSON.stringify(value) }],
    ...(isRefused ? { isError: true } : { structuredContent: value }),
    ...(meta !== undefined && { _meta: { ...meta } }),
  }
}

/** Tells a client that asked for it every second that the call is still under way, so that it goes on waiting. */
async function withProgress(
  called: Promise<ToolResult>,
  { _meta, notify }: ServerContext['mcpReq'],
): Promise<ToolResult> {
  const progressToken = _meta?.progressToken
  if (progressToken === undefined) return called
  let seconds = 0
  const tell = () => {
    seconds += 1
    const params = { progressToken, progress: seconds, message: `under way for ${seconds} s` }
    // The answer tells, too, for clients that do not listen.
    notify({ method: 'notifications/progress', params }).catch(() => undefined)
  }
  const timer = setInterval(tell, progressEveryMs)
  try {
    return await called
  } finally {
    clearInterval(timer)
  }
}

/** The messages of a stream that answer something, as JSON: one, or a list where a list was asked. */
async function withoutStream(response: Response, isBatch: boolean): Promise<Response> {
  if (response.headers.get('content-type')?.startsWith('text/event-stream') !== true) return response
  const messages = (await response.text())
    .split('\n')
    .filter((line) => line.startsWith('data:') && line.trim() !== 'data:')
    .map((line) => JSON.parse(line.slice('data:'.length)) as Readonly<Record<string, unknown>>)
    .filter((message) => 'result' in message || 'error' in message)
  return Response.json(isBatch ? messages : messages.at(-1), { status: response.status })
}
