import { client } from '../../app/client.ts'
import type { Row } from '../data/query.ts'
import { told } from '../data/writes.ts'
import type { LinkRows } from './drafts.ts'

/** Takes links away, and adds others, each as a row of the collection between. */
export async function writeLinkRows({ junction, own, column, added, removed }: LinkRows): Promise<void> {
  const path = `/items/${encodeURIComponent(junction.name)}/bulk`
  if (removed.length > 0) {
    const filter = { ...own, [column]: { in: removed } } as never
    const { data } = await client.items(junction.name).list({ fields: [junction.key], filter, limit: -1, count: false })
    const body = data.map((row: Row) => row[junction.key])
    told(`${countOf(body.length)} removed`, await client.send(path, { method: 'DELETE', body }))
  }
  if (added.length > 0) {
    const body = added.map((id) => ({ ...own, [column]: id }))
    told(`${countOf(added.length)} added`, await client.send(path, { method: 'POST', body }))
  }
}

const countOf = (links: number): string => (links === 1 ? '1 link' : `${links.toLocaleString()} links`)
