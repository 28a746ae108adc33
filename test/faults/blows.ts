import { setTimeout as delay } from 'node:timers/promises'
import type { Cluster } from '../support/cluster.ts'
import type { PrivateServer } from '../support/postgres.ts'
import { withClient } from '../support/server.ts'

/** What may happen to a running installation, each until it is over. */
export type Blow = (random: () => number) => Promise<void>

export type Target = { cluster: Cluster; url: string; cutLine: (random: () => number) => void }

/** The blows by name, which says what they do. */
export function blowsToProcesses({ cluster, url, cutLine }: Target): Readonly<Record<string, Blow>> {
  const anyWeb = (random: () => number) => cluster.web[Math.floor(random() * cluster.web.length)]!
  const terminate = async (which: string) => {
    await withClient(url, (client) =>
      client.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and ${which}`,
      ),
    )
  }
  return {
    'kill -9 web': async (random) => {
      const web = anyWeb(random)
      await web.kill('SIGKILL')
      await web.restart()
    },
    'end WAL sender': () => terminate(`backend_type = 'walsender'`),
    'end LISTEN': () => terminate(`application_name = 'daybook listen'`),
    'cut client': async (random) => cutLine(random),
    'freeze web': async (random) => {
      const web = anyWeb(random)
      web.freeze()
      await delay(100 + random() * 900)
      web.thaw()
    },
  }
}

export function blowsToServer(server: PrivateServer): Readonly<Record<string, Blow>> {
  return {
    'crash PostgreSQL': async () => {
      await server.stop('immediate')
      await server.start()
    },
    'end any connection': async (random) => {
      const some = `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and abs(hashint4(pid + $1)) % 2 = 0`
      await withClient(server.url, (client) => client.query(some, [Math.floor(random() * 1000)]))
    },
  }
}

/** So many blows, every kind as often as any other, in an order of chance. */
export function drawBlows(names: readonly string[], count: number, random: () => number): string[] {
  const drawn = Array.from({ length: count }, (_, i) => ({ name: names[i % names.length]!, place: random() }))
  return drawn.sort((a, b) => a.place - b.place).map(({ name }) => name)
}
