import { queryOptions } from '@tanstack/react-query'
import { client, queryClient } from '../../app/client.ts'
import { type Report, readBuilderSearch } from './question.ts'

/** A saved report: one's own, or shared with one's role by an administrator. */
export type Saved<Content> = {
  readonly id: string
  readonly name: string
  readonly role_Id: string | null
  readonly isOwn: boolean
  readonly content: Content
}

export type Dashboard = { readonly panels: readonly Panel[] }

/** A dashboard holds its reports whole: whoever may see it needs no other view, and none can be missing. */
export type Panel = {
  readonly id: string
  readonly name: string
  readonly width: Width
  readonly report: Report
}

export const widths = ['third', 'half', 'full'] as const
export type Width = (typeof widths)[number]

/** Each panel is followed, and a connection has at most twenty reports. */
export const mostPanels = 12

type View = Omit<Saved<unknown>, 'content'> & { readonly query: Readonly<Record<string, unknown>> }

const viewsOf = async (page: string): Promise<readonly View[]> =>
  (await client.request<{ data: readonly View[] }>('/views', { query: { page } })).data

export const savedReportsQuery = queryOptions({
  queryKey: ['views', 'reports'],
  queryFn: async (): Promise<readonly Saved<Report>[]> =>
    (await viewsOf('reports')).map(({ query, ...view }) => ({ ...view, content: savedReport(query) })),
})

export const dashboardsQuery = queryOptions({
  queryKey: ['views', 'dashboards'],
  queryFn: async (): Promise<readonly Saved<Dashboard>[]> =>
    (await viewsOf('dashboards')).map(({ query, ...view }) => ({ ...view, content: readDashboard(query) })),
})

/** A saved report holds the values of an address, and is read as such. */
function savedReport(query: Readonly<Record<string, unknown>>): Report {
  const { collection = '', aggregate = {}, groupBy = [], form = 'table', ...rest } = readBuilderSearch(query)
  const order = Array.isArray(query.measures) ? query.measures : []
  const measures = Object.entries(aggregate).sort(([a], [b]) => order.indexOf(a) - order.indexOf(b))
  return { ...rest, collection, aggregate: Object.fromEntries(measures), groupBy, form }
}

/** With the order of its measures: the database keeps no order of an object's members. */
const stored = (report: Report): object => ({ ...report, measures: Object.keys(report.aggregate) })

const storedContent = (content: Report | Dashboard): object =>
  'panels' in content
    ? { panels: content.panels.map((panel) => ({ ...panel, report: stored(panel.report) })) }
    : stored(content)

function readDashboard({ panels }: Readonly<Record<string, unknown>>): Dashboard {
  const list = Array.isArray(panels) ? panels.slice(0, mostPanels) : []
  return {
    panels: list.map((panel, place): Panel => {
      const { id, name, width, report } = Object(panel) as Record<string, unknown>
      return {
        id: typeof id === 'string' ? id : String(place + 1),
        name: typeof name === 'string' ? name : 'Report',
        width: widths.find((one) => one === width) ?? 'half',
        report: savedReport(Object(report) as Record<string, unknown>),
      }
    }),
  }
}

export function panelOf(report: Report, name: string, { panels }: Dashboard): Panel {
  const last = Math.max(0, ...panels.map(({ id }) => Number(id)).filter(Number.isSafeInteger))
  return { id: String(last + 1), name, width: report.form === 'figure' ? 'third' : 'half', report }
}

/** In the place of the panel that it came from, else as the last one. */
export function withReport(dashboard: Dashboard, report: Report, name: string, panelId: string | undefined): Dashboard {
  const { panels } = dashboard
  if (panels.some(({ id }) => id === panelId))
    return { panels: panels.map((panel) => (panel.id === panelId ? { ...panel, report } : panel)) }
  if (panels.length >= mostPanels) throw new Error(`A dashboard has at most ${mostPanels} reports.`)
  return { panels: [...panels, panelOf(report, name, dashboard)] }
}

/** The id of what was made. */
export async function create(
  page: 'reports' | 'dashboards',
  name: string,
  content: Report | Dashboard,
): Promise<string> {
  const collection = 'collection' in content ? content.collection : null
  const body = { name, page, collection, query: storedContent(content) }
  const { data } = await client.request<{ data: { id: string } }>('/views', { method: 'POST', body })
  await forget()
  return data.id
}

export async function save(id: string, content: Report | Dashboard): Promise<void> {
  const collection = 'collection' in content ? content.collection : null
  await change(id, { collection, query: storedContent(content) })
}

export const rename = (id: string, name: string): Promise<void> => change(id, { name })

/** With a role, or with nobody. */
export const share = (id: string, roleId: string | null): Promise<void> => change(id, { role_Id: roleId })

async function change(id: string, body: object): Promise<void> {
  await client.request(`/views/${id}`, { method: 'PATCH', body })
  await forget()
}

export async function remove(id: string): Promise<void> {
  await client.request(`/views/${id}`, { method: 'DELETE' })
  await forget()
}

const forget = () => queryClient.invalidateQueries({ queryKey: ['views'] })
