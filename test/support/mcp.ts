import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { onTestFinished } from 'vitest'

/** The generations of the protocol: with a handshake, and without. */
export type Generation = '2025' | '2026-07-28'

export type McpResult = { value: any; isRefused: boolean; meta: any }

export type McpClient = {
  readonly client: Client
  call(name: string, args?: Record<string, unknown>): Promise<McpResult>
  /** Of a call that must succeed. */
  done(name: string, args?: Record<string, unknown>): Promise<any>
}

/** The official client, connected to an endpoint with these headers until the test ends. */
export async function connectMcp(
  url: string,
  headers: Record<string, string>,
  generation: Generation = '2025',
  name = 'test client',
  fetch?: typeof globalThis.fetch,
): Promise<McpClient> {
  const mode = generation === '2025' ? ('legacy' as const) : { pin: generation }
  const client = new Client({ name, version: '1.0.0' }, { versionNegotiation: { mode } })
  await client.connect(
    new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers }, ...(fetch && { fetch }) }),
  )
  onTestFinished(() => client.close())
  // As programs do: from then on the client holds results against the shapes of the list.
  await client.listTools()
  const call = async (tool: string, args: Record<string, unknown> = {}): Promise<McpResult> => {
    const {
      content,
      structuredContent,
      isError = false,
      _meta,
    } = await client.callTool({ name: tool, arguments: args })
    const [block, ...others] = content as { type: string; text: string }[]
    if (block?.type !== 'text' || others.length > 0) throw new Error(`not one text: ${JSON.stringify(content)}`)
    const value = JSON.parse(block.text)
    // A refusal has another shape than what the tool declares to answer.
    if (JSON.stringify(structuredContent) !== (isError ? undefined : JSON.stringify(value)))
      throw new Error(`${block.text} is not ${JSON.stringify(structuredContent)}`)
    return { value, isRefused: isError, meta: _meta }
  }
  return {
    client,
    call,
    done: async (tool, args) => {
      const { value, isRefused } = await call(tool, args)
      if (isRefused) throw new Error(`${tool}: ${JSON.stringify(value)}`)
      return value
    },
  }
}

export const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
