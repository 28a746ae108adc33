import { type Tool, tools } from '../../src/features/operations/mcp/mcp.ts'
import { pathOf } from '../../src/features/operations/openapi/openapi.ts'
import type { DeclaredRoute } from '../../src/http/route.ts'
import { cell, type Page, page, table } from './markdown.ts'
import { callers, members } from './routes.ts'

/** Every tool of the MCP endpoint, from the table that offers them. */
export function toolsPage(routes: readonly DeclaredRoute[]): Page {
  const rows = tools.map(({ name, title, group }) => [`[\`${name}\`](#${name})`, cell(title), group])
  return page('tools', 'Tools of MCP', '`src/features/operations/mcp/tools/`', [
    'What assistants can call ([mcp.md](../mcp.md)). A tool calls the routes that it names in the name of its caller: what these',
    'refuse, it refuses.',
    '',
    ...table(['tool', 'what it does', 'group'], rows),
    '',
    ...tools.flatMap((tool) => section(tool, routes)),
  ])
}

function section(
  { name, description, group, input, isDestructive, isLogin, routes: called }: Tool,
  routes: readonly DeclaredRoute[],
) {
  const declared = called.map((route) => routes.find(({ method, url }) => `${method} ${url}` === route)!)
  const access = declared.map((route) => route.access)
  const scopes = (['admin', 'write', 'read'] as const).filter((one) => declared.some(({ scope }) => scope === one))
  const hints = [
    group,
    ...(isDestructive ? ['destructive'] : []),
    ...(isLogin ? ['only with `MCP_LOGIN_TOOLS=true`'] : []),
    ...(scopes[0] === undefined ? [] : [`scope \`${scopes[0]}\``]),
    `for ${callers[access.find((one) => one !== 'public') ?? 'bearer']}`,
  ]
  const calls = called.map((route) => {
    const [method, url] = route.split(' ') as [string, string]
    return `\`${method} ${pathOf(url)}\``
  })
  return [
    `## ${name}`,
    '',
    `${description} Group: ${hints.join('; ')}. Calls ${calls.join(', ')}.`,
    '',
    ...members('argument', input),
  ]
}
