import { type Reader, sql } from '../../../db/sql.ts'

/** A mail of the development inbox, as it would have been sent. */
export type KeptMail = {
  readonly id: string
  readonly type: string
  readonly to: string
  readonly subject: string
  readonly html: string
  readonly text: string
  readonly keptAt: Date
}

export type ListedMail = Omit<KeptMail, 'html' | 'text'>

const columns = sql.fragment`
  m.id, m."templateName" as type, m.email as "to", d.subject, extract(epoch from d."keptAt") * 1000 as "keptAt"`
const kept = sql.fragment`"svc_DevelopmentMail" d join "svc_EmailLog" m on m.id = d."emailLogId"`

/** The newest first, at most a hundred. */
export async function keptMails(db: Reader): Promise<readonly ListedMail[]> {
  const rows = await db.any<ListedMail>(sql.unsafe`select ${columns} from ${kept} order by d."keptAt" desc limit 100`)
  return rows.map(dated)
}

export async function keptMail(db: Reader, id: string): Promise<KeptMail | undefined> {
  const row = await db.maybeOne<KeptMail>(
    sql.unsafe`select ${columns}, d.html, d.text from ${kept} where m.id = ${id}::uuid`,
  )
  return row && dated(row)
}

function dated<Row extends { readonly keptAt: unknown }>(row: Row): Row {
  return { ...row, keptAt: new Date(Number(row.keptAt)) }
}
