import { AppError } from '../../../../src/errors.ts'
import type { Access } from '../../../../src/query/access.ts'
import { compileList } from '../../../../src/query/compile.ts'
import { parseListQuery } from '../../../../src/query/parse.ts'
import { type Plan, type ResolveEnv, resolveList } from '../../../../src/query/resolve.ts'
import type { Statement } from '../../../../src/query/sql.ts'
import { admin, env } from './access.ts'
import { catalog } from './catalog.ts'

export type Asked = {
  query?: Record<string, unknown>
  collection?: string
  access?: Access
  env?: Partial<ResolveEnv>
}

/** The plan of a list, by default of `notes` for the administrator. */
export function planOf({ query = {}, collection = 'notes', access = admin, env: more = {} }: Asked): Plan {
  return resolveList(catalog, access, collection, parseListQuery(query), { ...env, ...more })
}

export const listOf = (asked: Asked): Statement => compileList(planOf(asked))

/** The condition that a filter on `notes` becomes, without the soft-delete rule. */
export function conditionOf(filter: unknown, more: Omit<Asked, 'query'> = {}): string {
  const { text } = listOf({ ...more, query: { fields: ['id'], filter, paranoid: false, limit: 1 } })
  return / t where (.*?)\)::text as total/.exec(text)?.[1] ?? ''
}

/** Status, words and details of the refusal; fails when there is none. */
export function refusal(work: () => unknown): { status: number; message: string; details: unknown } {
  try {
    work()
  } catch (error) {
    if (error instanceof AppError) return { status: error.status, message: error.message, details: error.details }
    throw error
  }
  throw new Error('expected a refusal')
}

/** One clause per line, so that a golden file can be read and its diffs too. */
export function readable({ text, values }: Statement): string {
  let depth = 0
  const parts = text.split(/('(?:[^']|'')*'|"[^"]*")/)
  const lines = parts.map((part, i) => {
    if (i % 2 === 1) return part
    return part.replace(
      /[()]|\b(?: ?(?:left join|from|where|group by|order by|limit)| ?(?<!\()and) |\bselect /g,
      (token) => {
        if (token === '(' || token === ')') {
          depth += token === '(' ? 1 : -1
          return token
        }
        return token.trim() === 'select' && depth === 0 ? token : `\n${'  '.repeat(depth)}${token.trimStart()}`
      },
    )
  })
  return `${lines.join('').replace(/[ \t]+\n/g, '\n')}\n-- ${JSON.stringify(values)}\n`
}
