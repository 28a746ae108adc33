import { resolve } from 'node:path'
import type { Config } from '../config/config.ts'

/** The administrator that this start has created, with its password if it was made up. */
export type Admin = { email: string; password: string | null } | undefined

type BannerFacts = { url: string; docs: string; config: Config; admin: Admin }

/** The lines for a person once everything runs. */
export function banner({ url, docs, config: { database, project, mail, server }, admin }: BannerFacts): string {
  const password = admin?.password ? `${admin.password}   (shown only this once)` : 'as in ADMIN_PASSWORD'
  const rows: [label: string, value: string][] = [
    ['URL', url],
    ['Docs', docs],
    ...(mail.defaultSender === undefined && server.environment !== 'production'
      ? ([['Mail', `${url}/_dev/mail   (shown here, not sent)`]] as [string, string][])
      : []),
    ...(admin === undefined
      ? []
      : ([
          ['Admin', admin.email],
          ['Password', password],
        ] as [string, string][])),
    ['Data', database.url === undefined ? resolve(database.dataDir) : withoutPassword(database.url)],
  ]
  const lines = rows.map(([label, value]) => `    ${label.padEnd(9)} ${value}`)
  return ['', `  ${project.name} is running.`, '', ...lines, '', '  Ctrl-C stops everything.', ''].join('\n')
}

/** Where the interface is described; the file when the server does not show it. */
export async function docsAddress(url: string): Promise<string> {
  for (const path of ['/docs', '/openapi']) if ((await fetch(`${url}${path}`)).ok) return `${url}${path}`
  return 'README.md'
}

/** The address to reach a server under that listens on this host. */
export function addressOf(host: string, port: number): string {
  const reachable = { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

function withoutPassword(databaseUrl: string): string {
  const { host, pathname } = new URL(databaseUrl)
  return `${host}${pathname} (DATABASE_URL)`
}
