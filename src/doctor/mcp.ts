import type { Config } from '../config/config.ts'
import { type Finding, ok, warning } from './finding.ts'

/** What to paste into clients of the MCP endpoint, by client. */
export function clientLines(url: string): readonly (readonly [string, string])[] {
  const headers = { Authorization: 'Bearer <API key>' }
  return [
    ['Claude', `claude mcp add --transport http daybook ${url} --header "Authorization: Bearer <API key>"`],
    ['VS Code', `code --add-mcp '${JSON.stringify({ name: 'daybook', type: 'http', url, headers })}'`],
    ['Cursor', `in ~/.cursor/mcp.json: ${JSON.stringify({ mcpServers: { daybook: { url, headers } } })}`],
    ['ChatGPT', `Settings, Apps, Developer mode, Create: name daybook, server URL ${url}`],
  ]
}

/** Where assistants reach the endpoint, and the lines to paste. */
export function checkMcp({ mcp, server }: Config): Finding[] {
  if (!mcp.enabled) return []
  const url = `${server.baseUrl ?? `http://127.0.0.1:${server.port}`}${mcp.path}`
  const lines = clientLines(url).map(([client, line]) => ok(`mcp for ${client}`, line))
  if (server.baseUrl !== undefined) return lines
  const says = 'BASE_URL is not set: the lines below are for clients on this machine'
  return [warning('mcp', says, 'set BASE_URL to the public address'), ...lines]
}
