import type { Call, ListQuery } from '../../../clients/console-messages.ts'
import { client } from '../app/client.ts'
import { told } from '../pages/data/writes.ts'
import { type Extension, inTheNameOf } from './extensions.ts'

type DataCall = Extract<Call, { call: `items.${string}` | `reports.${string}` }>

export const isDataCall = (call: Call): call is DataCall =>
  call.call.startsWith('items.') || call.call.startsWith('reports.')

const defaultLimit = 100

/** Longer queries are refused by servers on the way. */
const longestQuery = 4000

/**
 * Reads and writes for an extension, as whoever is signed in. What is written is said, and can be undone.
 *
 * @throws {DaybookError} 403 also for collections that its manifest does not name
 */
export async function performData(extension: Extension, asked: DataCall, signal: AbortSignal): Promise<unknown> {
  const headers = inTheNameOf(extension)
  const rows = `/items/${encodeURIComponent(asked.args.collection)}`
  const one = (id: string | number) => `${rows}/${encodeURIComponent(String(id))}`
  const say = (what: string) => `${extension.title}: ${what}`
  switch (asked.call) {
    case 'items.list':
      return list(asked.args.collection, asked.args.query, { headers, signal })
    case 'items.get': {
      const { id, fields } = asked.args
      const query = { fields: fields?.join(',') }
      return (await client.request<{ data: unknown }>(one(id), { query, headers, signal })).data
    }
    case 'items.create': {
      const answer = await client.send<{ data: { id: string | number } }>(rows, {
        ...{ method: 'POST', body: asked.args.item, headers, signal },
      })
      told(say('created'), answer)
      return answer.body.data.id
    }
    case 'items.update': {
      const { id, change } = asked.args
      told(say('saved'), await client.send(one(id), { method: 'PATCH', body: change, headers, signal }))
      return null
    }
    case 'items.delete':
      told(say('deleted'), await client.send(one(asked.args.id), { method: 'DELETE', headers, signal }))
      return null
    case 'reports.run':
      return client.request(`/reports/${encodeURIComponent(asked.args.collection)}`, {
        ...{ method: 'POST', body: asked.args.query, headers, signal },
      })
  }
}

type Options = { readonly headers: Readonly<Record<string, string>>; readonly signal: AbortSignal }

function list(collection: string, { limit = defaultLimit, fields, sort, ...rest }: ListQuery, options: Options) {
  const query = { ...rest, limit, fields: fields?.join(','), sort: sort?.join(',') }
  const path = encodeURIComponent(collection)
  return JSON.stringify(query).length <= longestQuery
    ? client.request(`/items/${path}`, { query, ...options })
    : client.request(`/reports/${path}`, { method: 'POST', body: { ...rest, limit, fields, sort }, ...options })
}
