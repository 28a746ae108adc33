import type { Config } from '../config/config.ts'
import { issuerOf } from '../config/issuer.ts'
import { type Finding, ok, warning } from './finding.ts'

/** With which credential a client comes: an API key in a header, or what its user allows in a browser. */
type Credential = 'key' | 'OAuth'

/** The lines to paste into clients of the MCP endpoint, by client. */
export function clientLines(url: string, by: Credential): readonly (readonly [string, string])[] {
  const key = 'Bearer <API key>'
  const server = { url, ...(by === 'key' && { headers: { Authorization: key } }) }
  const header = by === 'key' ? ` --header "Authorization: ${key}"` : ''
  const lines: readonly (readonly [string, string])[] = [
    ['Claude', `claude mcp add --transport http daybook ${url}${header}`],
    ['VS Code', `code --add-mcp '${JSON.stringify({ name: 'daybook', type: 'http', ...server })}'`],
    ['Cursor', `in ~/.cursor/mcp.json: ${JSON.stringify({ mcpServers: { daybook: server } })}`],
  ]
  // It can be given no header.
  if (by === 'key') return lines
  return [...lines, ['ChatGPT', `Settings, Apps, Developer mode, Create: name daybook, server URL ${url}, OAuth`]]
}

/** Where assistants reach the endpoint, and the lines to paste. */
export function checkMcp(config: Config): Finding[] {
  const { mcp, server } = config
  if (!mcp.enabled) return []
  const url = `${server.baseUrl ?? `http://127.0.0.1:${server.port}`}${mcp.path}`
  const issuer = issuerOf(config)
  const ways: readonly Credential[] = issuer === undefined ? ['key'] : ['OAuth', 'key']
  const lines = ways.flatMap((by) =>
    clientLines(url, by).map(([client, line]) => ok(`mcp for ${client} by ${by}`, line)),
  )
  if (issuer === undefined && config.oauthServer.enabled)
    lines.push(warning('mcp by OAuth', 'is off: it needs BASE_URL with https', 'set BASE_URL to the public address'))
  if (server.baseUrl !== undefined) return lines
  const says = 'BASE_URL is not set: the lines below are for clients on this machine'
  return [warning('mcp', says, 'set BASE_URL to the public address'), ...lines]
}
