import { rawQuery, type Tx } from '../../db/sql.ts'
import type { Access } from '../../query/access.ts'
import { compileOne } from '../../query/compile.ts'
import { parseListQuery } from '../../query/parse.ts'
import { resolveList, resolveOne } from '../../query/resolve.ts'
import type { Runtime } from '../../runtime.ts'
import type { Writer } from './context.ts'
import { resolveEnv } from './reads.ts'

/** The query string of a write: `fields` asks for more of the written row than its id (decisions F15). */
export type AnswerQuery = Readonly<Record<string, unknown>>

/** What is written: ids as JSON texts, and where fields were asked for the rows as JSON texts, in the same order. */
export type Written = { readonly ids: readonly string[]; readonly rows: readonly string[] | undefined }

/** Whether the answer shall have more than the id. 400 and 403 as for a read, before anything is written. */
export function wantsRows(rt: Runtime, access: Access, collection: string, query: AnswerQuery): boolean {
  const asked = readable(query)
  if (asked === undefined) return false
  resolveList(rt.catalog.current(), access, collection, parseListQuery(asked), resolveEnv(rt))
  return true
}

/** The rows as their writer may read them, in the transaction that wrote them; of one that it may not, the id alone. */
export async function writtenRows(
  rt: Runtime,
  { access }: Writer,
  tx: Tx,
  collection: string,
  ids: readonly string[],
  query: AnswerQuery,
): Promise<readonly string[]> {
  const asked = parseListQuery(readable(query)!)
  const rows: string[] = []
  for (const id of ids) {
    const key = String(JSON.parse(id))
    const plan = resolveOne(rt.catalog.current(), access, collection, key, asked, resolveEnv(rt))
    const { text, values } = compileOne(plan)
    const row = await tx.maybeOne<{ data: string }>(rawQuery(text, values))
    rows.push(row?.data ?? `{"id":${id}}`)
  }
  return rows
}

/** The parameters that choose fields, in any of their spellings; undefined when there are none. */
function readable(query: AnswerQuery): AnswerQuery | undefined {
  const chosen = Object.entries(query).filter(([key]) => /^(fields|relConditions)(\[|$)/.test(key))
  return chosen.some(([key]) => key.startsWith('fields')) ? Object.fromEntries(chosen) : undefined
}
