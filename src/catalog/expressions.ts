/**
 * SQL expressions that administrators write into definitions: SQL defaults, VIRTUAL columns, CHECK constraints. They
 * become part of generated DDL between parentheses, so each must be one expression that cannot leave them. What it
 * means, and that it has no subquery, is checked by PostgreSQL when the change is made.
 */

const maxLength = 2000

/** A quoted string or name; without backslashes (refused below) PostgreSQL ends them where this does. */
const quoted = /'(?:[^']|'')*'|"(?:[^"]|"")*"/g

/** What is wrong with the text as one SQL expression; undefined when nothing is. */
export function expressionProblem(text: string): string | undefined {
  if (text.trim() === '') return 'an SQL expression is empty'
  if (text.length > maxLength) return `an SQL expression is longer than ${maxLength} characters`
  if (/[\\\0]/.test(text)) return 'an SQL expression has a backslash or NUL'
  const bare = text.replace(quoted, '?')
  if (/['"]/.test(bare)) return 'an SQL expression has a quote that is not closed'
  if (/[;$]|--|\/\*/.test(bare)) return 'an SQL expression has a semicolon, a comment or a dollar sign'
  return isBalanced(bare) ? undefined : 'an SQL expression has brackets that do not match'
}

const closing: Readonly<Record<string, string>> = { '(': ')', '[': ']' }

function isBalanced(bare: string): boolean {
  const open: string[] = []
  for (const char of bare) {
    if (char in closing) open.push(closing[char]!)
    else if ((char === ')' || char === ']') && open.pop() !== char) return false
  }
  return open.length === 0
}
