/**
 * The floors of `src/`, from the roof to the ground: what each hides, and what it may import. The map in ARCHITECTURE.md
 * is written from this table (`npm run gen`), and `check-imports.ts` makes its rules of it, for types like for values.
 */
export type Floor = {
  readonly name: string
  /** Its folders and files, from `src/`. */
  readonly places: readonly string[]
  readonly hides: string
  /** Names of floors below it; {@link ground} is open to all. */
  readonly mayImport: readonly string[]
}

/** The floors that every floor may import. */
const ground: readonly string[] = ['language', 'errors']

const platform = ['access', 'query', 'cache', 'events', 'catalog', 'db', 'adapters', 'admission', 'config']
const slices = ['operations', 'accounts', 'messaging', 'work', 'files', 'settings', 'data']

export const floors: readonly Floor[] = [
  { name: 'package', places: ['index.ts'], hides: "what `import … from 'daybook'` gives", mayImport: [] },
  {
    name: 'launcher',
    places: ['start.ts', 'launcher/'],
    hides: '`npm start`: embedded PostgreSQL, setup, every process, one banner',
    mayImport: ['process', 'workers', 'db', 'config'],
  },
  {
    name: 'cli',
    places: ['cli/'],
    hides:
      '`npx daybook`: `commands.ts` is THE list of commands; they find the database of the directory, the embedded one too',
    mayImport: [
      'launcher',
      'doctor',
      'api',
      'workers',
      'setup',
      'process',
      'operations',
      'files',
      'data',
      'events',
      'db',
      'adapters',
      'config',
      'package',
    ],
  },
  {
    name: 'api',
    places: ['api/'],
    hides:
      'the web process: `routes.ts` is THE list of routes, `access.ts` who may call them, `error-bodies.ts` the two error formats, `realtime.ts` and `realtime/` the socket channel, `limits.ts` THE list of routes that count attempts, `local-calls.ts` how the process calls its own routes, `extension-callers.ts` the rights of requests that the console makes for an extension, `parameters.ts` the parameters that all routes of data accept',
    mayImport: ['doctor', 'setup', 'extensions', 'process', ...slices, 'http', ...platform],
  },
  {
    name: 'doctor',
    places: ['doctor/'],
    hides:
      'what an installation lacks: reads the facts of a server, judges them by pure functions; `doctor.ts` is THE list of checks',
    mayImport: ['workers', 'extensions', ...slices, ...platform],
  },
  {
    name: 'workers',
    places: ['workers/'],
    hides:
      'the worker processes: `workers.ts` is THE list, `loop.ts` fetches and completes jobs, `consumers.ts` hosts consumers of the log, `tasks/` claims tasks and watches the processes that run their handlers',
    mayImport: ['extensions', 'process', ...slices, ...platform],
  },
  {
    name: 'setup',
    places: ['setup/'],
    hides: 'the release step; may run any number of times and in parallel',
    mayImport: [
      'process',
      'operations',
      'messaging',
      'files',
      'data',
      'access',
      'events',
      'catalog',
      'db',
      'adapters',
      'config',
    ],
  },
  {
    name: 'extensions',
    places: ['extensions/'],
    hides:
      'loads the code of `EXTENSIONS_DIR`, the only code found by file name, and gives it its context: `docs/extensions.md`',
    mayImport: ['messaging', 'work', 'files', 'data', 'http', ...platform],
  },
  {
    name: 'process',
    places: ['process/'],
    hides:
      'the roof: `runtime.ts` opens what a process shares and closes it again; only entry points know it, functions below take the capabilities they use. `system-rules.ts` is THE list of rules for rows of system collections',
    mayImport: [...slices, ...platform],
  },
  {
    name: 'operations',
    places: ['features/operations/'],
    hides:
      'running an installation: retries of jobs and mails (`ops`), `metrics`, the state of `realtime`, `project-info`, `openapi` (the description of what a caller may do, and the page `/docs`), `console` (the built console at `/console`; its source is in `console/`), `mcp` (tools that call routes: `tools/tools.ts` is THE table), `views` (saved views of the console), `project` (the definition of a product as files), and `backup` (everything as of one moment, in one format)',
    mayImport: ['accounts', 'messaging', 'work', 'files', 'settings', 'data', 'http', ...platform],
  },
  {
    name: 'accounts',
    places: ['features/accounts/'],
    hides:
      'who signs in, by which proof, and what an administrator grants: `auth`, which stands on `proofs` (of passkeys and second factors), `api-keys` and `membership`; `two-factor`, `passkeys`, `social`, `oauth` (programs that act for users), `tenants`, `identity` (who may change an account), `permissions` (routes, review, explain), `preview` (see as somebody else)',
    mayImport: ['messaging', 'files', 'settings', 'data', 'http', ...platform],
  },
  {
    name: 'messaging',
    places: ['features/messaging/'],
    hides:
      'messages to people and programs: `mail`, `templates`, `inbox`, `notifications`, `webhooks`, and the `rooms` of the socket channel',
    mayImport: ['files', 'settings', 'data', 'http', ...platform],
  },
  {
    name: 'work',
    places: ['features/work/'],
    hides:
      'work that is claimed row by row: `tasks`, and `workflows` (graphs of nodes that start by a trigger); `scripts` (code of users, in isolates of processes that may die)',
    mayImport: ['messaging', 'files', 'settings', 'data', 'http', ...platform],
  },
  {
    name: 'files',
    places: ['features/files/'],
    hides:
      'content outside of the database: `storage` (services, LOCAL and S3), `images` (decoded in processes of their own), `assets` (content as browsers get it), `files` (rows of svc_File; upload, replacement and removal of content), `tus` (resumable uploads)',
    mayImport: ['settings', 'data', 'http', ...platform],
  },
  {
    name: 'settings',
    places: ['features/settings/'],
    hides: 'the settings of the installation and of each tenant',
    mayImport: ['data', 'http', ...platform],
  },
  {
    name: 'data',
    places: ['features/data/'],
    hides:
      'rows, and reads of them: `items` (plan → apply → answer), `reports`, `changes`, `history`, `undo` (also of requests: explorer and trash), `schemas`, `migrations`, `hooks`; knows no system collection',
    mayImport: ['http', ...platform],
  },
  {
    name: 'http',
    places: ['http/'],
    hides:
      'how routes declare themselves: `route.ts` makes a declaration a route, `shapes.ts` has the shared shapes, reads requests by shapes and words the refusals; checks that JSON can be stored',
    mayImport: ['access', 'events', 'db', 'adapters', 'config'],
  },
  {
    name: 'access',
    places: ['access/'],
    hides: 'authorization: the present roles, rules and grants, compiled for a principal',
    mayImport: ['query', 'catalog', 'db'],
  },
  {
    name: 'query',
    places: ['query/'],
    hides: 'the query compiler, pure: parse → resolve → compile',
    mayImport: ['events', 'catalog', 'config'],
  },
  {
    name: 'cache',
    places: ['cache/'],
    hides:
      'cached answers: `log-watch.ts` asks the log for changes, `data-cache.ts` keeps answers and judges their age, `admission-policy.ts` decides which answers to keep without being asked, `shared-store.ts` is what processes share through Redis or Upstash: answers, and the jobs that remove stale ones; by `system-sync.ts` they tell each other there which version of the rules is current',
    mayImport: ['events', 'catalog', 'db', 'adapters', 'config'],
  },
  {
    name: 'events',
    places: ['events/'],
    hides:
      '`types.ts` (every event), `actor.ts` (who did it, and what led to it), `jobs.ts` (every queue), `reactions.ts` (the jobs that follow from an event), `commit.ts` (the door for changes), `row-batches.ts` (one-row writes of several requests by one statement), `direct-session.ts` (the connection of setup, migrations and the upkeep of the log), `log-table.ts` (table and publication), `log.ts` (the doors through its guard, how statements name the actor, the ids of events), `feed*.ts`, `cursor.ts`, `consumer.ts` (consumers of the log, which miss nothing), `progress.ts` (progress of long work), `seals/` (a signed chain over the log)',
    mayImport: ['catalog', 'db', 'adapters', 'admission', 'config'],
  },
  {
    name: 'catalog',
    places: ['catalog/'],
    hides: 'definitions → catalog → DDL, and the triggers that write the log',
    mayImport: ['db', 'adapters'],
  },
  {
    name: 'db',
    places: ['db/'],
    hides:
      'connection pools, among them the read-only one of the routes, and the way of statements to PostgreSQL; `poolers/` detects poolers on that way, `replicas/` reads from standbys, `embedded/` runs the server that comes along; `unlogged/` is the door for writes that are no events',
    mayImport: ['adapters', 'admission', 'config'],
  },
  {
    name: 'adapters',
    places: ['adapters/'],
    hides: 'one npm package each',
    mayImport: ['admission', 'config'],
  },
  {
    name: 'admission',
    places: ['admission/'],
    hides:
      'admission control: who asks for work, and whether it runs, waits or is refused, by its learnt cost; `step.ts` is pure; `docs/overload.md`',
    mayImport: [],
  },
  { name: 'config', places: ['config/'], hides: 'environment → frozen value, from one table', mayImport: [] },
  {
    name: 'language',
    places: ['language/'],
    hides:
      'additions to JavaScript: values made once per object, near names, UUIDs, directories, pauses in long work, limits for a child process',
    mayImport: [],
  },
  { name: 'errors', places: ['errors.ts'], hides: 'every refusal: status, code, message', mayImport: [] },
]

/*
 * A slice has its HTTP in `routes.ts`, and what others may use in the file of its name: its public face. One that nobody uses
 * needs none. Where its SQL stands is no rule: `queries.ts` is for slices with many statements.
 */

/** Wings that are one slice; in the others each folder is one. */
const wholeWings = ['settings']
const dividedWings = ['accounts', 'data', 'files', 'messaging', 'operations', 'work']

export type Rule = {
  readonly name: string
  readonly comment: string
  readonly severity: 'error'
  readonly from: { readonly path: string; readonly pathNot?: string }
  readonly to: { readonly path: string; readonly pathNot?: string }
}

/** The import rules that the table and the faces of slices come to. */
export function rulesOfFloors(): Rule[] {
  return [...floors.map(ruleOf), unplaced, ...facesOfSlices]
}

function ruleOf({ name, places, mayImport }: Floor): Rule {
  const open = floors.filter((floor) => [name, ...mayImport, ...ground].includes(floor.name))
  return {
    name: `floor-${name}`,
    comment: `Dependencies point down: see the map in ARCHITECTURE.md.`,
    severity: 'error',
    from: { path: pathOf(places) },
    to: { path: '^src/', pathNot: pathOf(open.flatMap((floor) => floor.places)) },
  }
}

const pathOf = (places: readonly string[]): string =>
  `^src/(${places.map((place) => place.replace('.', '\\.')).join('|')})`

const unplaced: Rule = {
  name: 'every-file-on-a-floor',
  comment: 'A file outside of the map has no rules.',
  severity: 'error',
  from: { path: '^src/', pathNot: pathOf(floors.flatMap(({ places }) => places)) },
  to: { path: '' },
}

const whole = wholeWings.join('|')
const divided = dividedWings.join('|')
/** `data/items/items.ts`, `settings/settings.ts` */
const faces = `^src/features/((${whole})/\\2\\.ts|(${divided})/([^/]+)/\\4\\.ts)$`
const byTheirFace = 'Another slice is entered by its public face alone, so that its inside can change.'

const facesOfSlices: readonly Rule[] = [
  {
    name: 'slices-by-their-face',
    comment: byTheirFace,
    severity: 'error',
    from: { path: `^src/features/(${divided})/([^/]+)/` },
    to: { path: '^src/features/', pathNot: `^src/features/$1/$2/|${faces}` },
  },
  {
    name: 'wings-by-their-face',
    comment: byTheirFace,
    severity: 'error',
    from: { path: `^src/features/(${whole})/` },
    to: { path: '^src/features/', pathNot: `^src/features/$1/|${faces}` },
  },
  {
    name: 'processes-by-the-face',
    comment: `${byTheirFace} Lists of routes, jobs and seeds name the file of each slice that has them; the roof opens what it opens.`,
    severity: 'error',
    from: { path: '^src/', pathNot: '^src/(features|process)/' },
    to: { path: '^src/features/', pathNot: `${faces}|(^|[/-])(routes|jobs|seeds)\\.ts$` },
  },
]

/** The table as Markdown. */
export function floorsTable(): string {
  const rows = floors.map(({ places, hides, mayImport }) => {
    const where = places.map((place) => `\`src/${place}\``).join(', ')
    return `| ${where} | ${hides} | ${shortened(mayImport).join(', ')} |`
  })
  return [
    '| floor | what it hides | what it may import, besides `language` and `errors` |',
    '| --- | --- | --- |',
    ...rows,
  ].join('\n')
}

/** With one word for what stands together. */
function shortened(names: readonly string[]): readonly string[] {
  const groups: [string, readonly string[]][] = [
    ['all wings', slices],
    ['everything from `access` down', platform],
  ]
  return groups.reduce(
    (left, [word, group]) =>
      group.every((name) => left.includes(name)) ? [...left.filter((name) => !group.includes(name)), word] : left,
    names,
  )
}
