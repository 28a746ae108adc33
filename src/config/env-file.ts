/**
 * The number of the first line of a .env file that is no assignment, comment or blank, or whose quote is never
 * closed. `parseEnv` drops such lines silently, but a slip in a secret's line must not pass as "unset".
 */
export function firstMalformedLine(content: string): number | undefined {
  const text = content.replaceAll('\r\n', '\n').replace(/^\uFEFF/, '')
  let end = 0
  while (end < text.length) {
    statement.lastIndex = end
    if (!statement.test(text)) return text.slice(0, end).split('\n').length
    end = statement.lastIndex
  }
  return undefined
}

const blanks = /[^\S\n]*/.source
const comment = /#[^\n]*/.source
const quoted = /"[^"]*"|'[^']*'|`[^`]*`/.source
const bare = /(?!["'`])[^\n]*/.source
const key = /(?:export[^\S\n]+)?[A-Za-z_][\w.-]*/.source
const assignment = `${key}${blanks}=${blanks}(?:(?:${quoted})${blanks}(?:${comment})?|${bare})`

/** One statement with its line end; sticky, so that it is matched exactly where the last one ended. */
const statement = new RegExp(`${blanks}(?:${comment}|${assignment})?(?:\\n|$)`, 'y')
