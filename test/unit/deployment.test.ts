import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import { Type } from 'typebox'
import { Errors } from 'typebox/value'
import { describe, expect, it } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { configDocument } from '../../scripts/config-document.ts'
import { parseConfig } from '../../src/config/config.ts'
import { workerNames } from '../../src/workers/names.ts'

/* What `daybook init` writes to run in containers, held against the program: its processes, its variables, its times. */

const project = join(import.meta.dirname, '../../templates/project')
const textOf = (file: string) =>
  readFileSync(join(project, file), 'utf8').replaceAll(/\{\{(name|title|host)\}\}/g, 'board')

const closed = <Members extends Record<string, any>>(members: Members) =>
  Type.Object(members, { additionalProperties: false })
const optional = Type.Optional
const Texts = Type.Array(Type.String())
const Value = Type.Union([Type.String(), Type.Number()])
const Values = Type.Record(Type.String(), Value)

function problemsOf(shape: any, value: unknown): string[] {
  return [...Errors(shape, value)].map(({ instancePath, message }: any) => `${instancePath}: ${message}`)
}

/** Process by process, what comes after `daybook`: as the Procfile runs them from the sources. */
const processes = new Map(
  readFileSync(join(project, '../../Procfile'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => {
      const [, name, script, worker] = /^(\w+): .*node src\/([\w/]+)\.ts(?: (\S+))?$/.exec(line)!
      const command = { 'setup/main': ['setup'], 'api/main': ['web'], 'workers/main': ['worker', worker!] }[script!]!
      return [name === 'release' ? 'setup' : name!, ['node_modules/.bin/daybook', ...command]]
    }),
)

/** Whether docs/config.md has it, families like `LOCAL_STORAGE_PATH` included. */
const documented = [...configDocument().matchAll(/^\| `([A-Z<>_\d]+)`/gm)].map(
  ([, name]) => new RegExp(`^${name!.replace(/<\w+>/, '[A-Z0-9_]+')}$`),
)
const isKnown = (name: string) => documented.some((pattern) => pattern.test(name))

const env = textOf('env')
const keys = ['secret', 'metrics', 'postgres', 'database', 's3id', 's3secret']
const filledEnv = keys.reduce((text, key) => text.replace(`{{${key}}}`, `${key}-0123456789-0123456789-0123456789`), env)
const set = parseEnv(filledEnv) as Record<string, string>

/** The last worker that shows its metrics does so this far above METRICS_PORT. */
const portOf = (worker: string) => 9100 + (workerNames as readonly string[]).indexOf(worker)

describe('.env', () => {
  it('sets nothing that the program does not know, and keys that it takes in production', () => {
    const config = parseConfig({ ...set, NODE_ENV: 'production', DATABASE_URL: 'postgres://a:b@c/d' })
    expect(config.warnings.filter((warning) => warning.includes('not a variable'))).toEqual([])
    const named = [...env.matchAll(/^(?:# )?([A-Z][A-Z0-9_]*)=/gm)].map(([, name]) => name!)
    expect(named.filter((name) => !isKnown(name) && !usedByCompose.has(name))).toEqual([])
    expect(parseConfig({ ...set, NODE_ENV: 'production', DATABASE_URL: 'postgres://a:b@c/d' }).mcp.enabled).toBe(true)
  })
})

const compose = textOf('compose.yaml')
/** The variables in it (`${NAME}`), with their defaults. */
const usedByCompose = new Map(
  [...compose.matchAll(/(?<!\$)\$\{([A-Z0-9_]+)(:-[^}]*)?\}/g)].map(([, name, fallback]) => [name!, fallback]),
)

const Service = closed({
  ...{ image: optional(Type.String()), build: optional(closed({ context: Type.String(), dockerfile: Type.String() })) },
  ...{ command: optional(Texts), entrypoint: optional(Texts), env_file: optional(Type.String()) },
  ...{ environment: optional(Values), user: optional(Type.String()), read_only: optional(Type.Boolean()) },
  ...{ tmpfs: optional(Texts), volumes: optional(Texts), cap_drop: optional(Texts), security_opt: optional(Texts) },
  restart: Type.Union([Type.Literal('no'), Type.Literal('unless-stopped'), Type.Literal('on-failure')]),
  stop_grace_period: optional(Type.String({ pattern: '^[0-9]+s$' })),
  healthcheck: optional(
    Type.Union([
      closed({ disable: Type.Literal(true) }),
      closed({
        ...{ test: Texts, interval: Type.String(), timeout: Type.String(), retries: Type.Integer() },
        start_period: Type.String(),
      }),
    ]),
  ),
  depends_on: optional(
    Type.Union([
      Texts,
      Type.Record(
        Type.String(),
        closed({
          condition: Type.Union([Type.Literal('service_healthy'), Type.Literal('service_completed_successfully')]),
        }),
      ),
    ]),
  ),
  ...{ deploy: optional(closed({ replicas: Type.Integer() })), ports: optional(Texts), profiles: optional(Texts) },
  ...{
    shm_size: optional(Type.String()),
    configs: optional(Type.Array(closed({ source: Type.String(), target: Type.String() }))),
  },
})
const Compose = closed({
  'x-daybook': Type.Unknown(),
  services: Type.Record(Type.String(), Service),
  configs: Type.Record(Type.String(), closed({ content: Type.String() })),
  volumes: Type.Record(Type.String(), Type.Null()),
})

describe('compose.yaml', () => {
  const parsed = parse(compose, { merge: true }) as any
  const services = parsed.services as Record<string, any>
  const own = Object.entries(services).filter(([, { build }]) => build !== undefined)

  it('has the shape of a compose file, and names only what is there', () => {
    expect(problemsOf(Compose, parsed)).toEqual([])
    const mounted = Object.values(services).flatMap(({ volumes = [] }) =>
      volumes.map((one: string) => one.split(':')[0]),
    )
    const files = mounted.filter((one) => one.startsWith('./'))
    expect(mounted.filter((one) => !files.includes(one) && !(one in parsed.volumes))).toEqual([])
    for (const file of files) expect(readdirSync(join(project, file, '..')).length).toBeGreaterThan(0)
    const needed = Object.values(services).flatMap(({ depends_on = {} }) =>
      Array.isArray(depends_on) ? depends_on : Object.keys(depends_on),
    )
    expect(needed.filter((name) => !(name in services))).toEqual([])
  })

  it('runs every process of the Procfile, after setup, which waits for PostgreSQL', () => {
    expect(new Map(own.map(([name, { command }]) => [name, command]))).toEqual(processes)
    expect(services.setup.depends_on).toEqual({ postgres: { condition: 'service_healthy' } })
    for (const [name, { depends_on }] of own.filter(([name]) => name !== 'setup'))
      expect([name, depends_on]).toEqual([name, { setup: { condition: 'service_completed_successfully' } }])
    expect(services.web.deploy.replicas).toBe(2)
    expect(services.postgres).toMatchObject({
      image: expect.stringMatching(/postgres:18$/),
      command: expect.arrayContaining(['wal_level=logical']),
    })
    expect(services.postgres.volumes).toContain('database:/var/lib/postgresql')
  })

  it('sets variables that the program knows, and reads those that .env sets', () => {
    const unset = [...usedByCompose].filter(([name, fallback]) => fallback === undefined && set[name] === undefined)
    expect(unset).toEqual([])
    for (const [, { environment }] of own) {
      expect(Object.keys(environment).filter((name) => !isKnown(name))).toEqual(['READY_PORT'])
      const values = Object.entries<string | number>(environment).map(([name, value]) => [name, placed(String(value))])
      const config = parseConfig({ ...set, ...Object.fromEntries(values) }, { requireDatabase: true })
      expect(config.storage.defaultService).toBe('local')
    }
  })

  /** As compose puts values in. */
  const placed = (text: string) =>
    text.replaceAll(/\$\{([A-Z0-9_]+)(?::-([^}]*))?\}/g, (_whole, name: string, fallback = '') => set[name] ?? fallback)

  it('shuts processes in, asks each whether it is ready, and lets it finish', () => {
    const config = parseConfig({ ...set, DATABASE_URL: 'postgres://a:b@c/d' })
    for (const [name, service] of own) {
      expect([name, service]).toMatchObject([
        name,
        {
          user: '1000:1000',
          read_only: true,
          cap_drop: ['ALL'],
          security_opt: ['no-new-privileges:true'],
          tmpfs: ['/tmp'],
        },
      ])
      expect(Number.parseInt(service.stop_grace_period, 10)).toBeGreaterThan(longestStop(config))
      const [, kind, worker] = processes.get(name)!
      if (kind === 'setup') continue
      expect(service.healthcheck.test.join(' ')).toContain('$${process.env.READY_PORT}/ready')
      expect([name, service.environment.READY_PORT]).toEqual([name, kind === 'web' ? 8055 : portOf(worker!)])
    }
  })
})

const longestStop = ({ server, tasks }: ReturnType<typeof parseConfig>) =>
  Math.max(server.shutdownTimeoutMs / 1000, tasks.shutdownWaitSeconds + 10)

const Labels = closed({ 'app.kubernetes.io/name': Type.Literal('board'), 'app.kubernetes.io/component': Type.String() })
const head = (apiVersion: string, kind: string) => ({ apiVersion: Type.Literal(apiVersion), kind: Type.Literal(kind) })
const Named = closed({ name: Type.String(), labels: optional(Labels) })
const Probe = closed({
  httpGet: closed({ path: Type.Union([Type.Literal('/ready'), Type.Literal('/health')]), port: Type.String() }),
  ...{
    periodSeconds: Type.Integer(),
    timeoutSeconds: optional(Type.Integer()),
    failureThreshold: optional(Type.Integer()),
  },
})
const Container = closed({
  ...{ name: Type.String(), image: Type.Literal('board'), command: Texts },
  envFrom: Type.Tuple([
    closed({ configMapRef: closed({ name: Type.Literal('board') }) }),
    closed({ secretRef: closed({ name: Type.Literal('board') }) }),
  ]),
  ports: optional(Type.Array(closed({ name: Type.String(), containerPort: Type.Integer() }))),
  ...{ startupProbe: optional(Probe), readinessProbe: optional(Probe), livenessProbe: optional(Probe) },
  lifecycle: optional(closed({ preStop: closed({ sleep: closed({ seconds: Type.Integer() }) }) })),
  securityContext: closed({
    allowPrivilegeEscalation: Type.Literal(false),
    readOnlyRootFilesystem: Type.Literal(true),
    capabilities: closed({ drop: Type.Tuple([Type.Literal('ALL')]) }),
  }),
  resources: closed({
    requests: closed({ cpu: Value, memory: Type.String() }),
    limits: closed({ memory: Type.String() }),
  }),
  volumeMounts: Type.Array(closed({ name: Type.String(), mountPath: Type.String() })),
})
const Pod = closed({
  metadata: closed({ labels: Labels }),
  spec: closed({
    ...{ restartPolicy: optional(Type.Literal('OnFailure')), automountServiceAccountToken: Type.Literal(false) },
    terminationGracePeriodSeconds: optional(Type.Integer()),
    securityContext: closed({
      runAsNonRoot: Type.Literal(true),
      ...{ runAsUser: Type.Literal(1000), runAsGroup: Type.Literal(1000), fsGroup: Type.Literal(1000) },
      seccompProfile: closed({ type: Type.Literal('RuntimeDefault') }),
    }),
    topologySpreadConstraints: optional(Type.Array(Type.Unknown())),
    containers: Type.Array(Container, { minItems: 1, maxItems: 1 }),
    volumes: Type.Array(
      closed({
        name: Type.String(),
        persistentVolumeClaim: optional(closed({ claimName: Type.Literal('board-files') })),
        emptyDir: optional(closed({})),
      }),
    ),
  }),
})
const Selector = closed({ matchLabels: Labels })
const kinds: Record<string, any> = {
  ConfigMap: closed({ ...head('v1', 'ConfigMap'), metadata: Named, data: Type.Record(Type.String(), Type.String()) }),
  PersistentVolumeClaim: closed({ ...head('v1', 'PersistentVolumeClaim'), metadata: Named, spec: Type.Unknown() }),
  Job: closed({
    ...head('batch/v1', 'Job'),
    metadata: Named,
    spec: closed({ backoffLimit: Type.Integer(), template: Pod }),
  }),
  Deployment: closed({
    ...head('apps/v1', 'Deployment'),
    metadata: Named,
    spec: closed({ replicas: Type.Integer(), strategy: optional(Type.Unknown()), selector: Selector, template: Pod }),
  }),
  Service: closed({
    ...head('v1', 'Service'),
    metadata: Named,
    spec: closed({
      ...{ selector: Labels, sessionAffinity: Type.Literal('ClientIP') },
      ports: Type.Array(closed({ name: Type.String(), port: Type.Integer(), targetPort: Type.String() })),
    }),
  }),
  PodDisruptionBudget: closed({
    ...head('policy/v1', 'PodDisruptionBudget'),
    metadata: Named,
    spec: closed({ minAvailable: Type.Integer(), selector: Selector }),
  }),
}

describe('deploy/kubernetes', () => {
  const directory = 'deploy/kubernetes'
  const { resources } = parse(textOf(`${directory}/kustomization.yaml`)) as { resources: string[] }
  const objects = resources.flatMap((file) =>
    parseAllDocuments(textOf(`${directory}/${file}`)).map((one) => one.toJS() as any),
  )
  const workloads = objects.filter(({ kind }) => kind === 'Job' || kind === 'Deployment')

  it('has objects of the shapes of Kubernetes, and a list of all files', () => {
    expect(readdirSync(join(project, directory)).toSorted()).toEqual([...resources, 'kustomization.yaml'].toSorted())
    expect(
      objects.flatMap((one) => problemsOf(kinds[one.kind], one).map((problem) => `${one.metadata.name}${problem}`)),
    ).toEqual([])
    expect(new Set(objects.map(({ kind }) => kind))).toEqual(new Set(Object.keys(kinds)))
  })

  it('runs every process of the Procfile, each where its labels say', () => {
    const commands = workloads.map(({ metadata, spec }) => {
      const [container] = spec.template.spec.containers
      expect(spec.template.metadata.labels).toEqual(metadata.labels)
      if (spec.selector !== undefined) expect(spec.selector.matchLabels).toEqual(metadata.labels)
      expect([metadata.name, container.name]).toEqual([
        `board-${container.name}`,
        metadata.labels['app.kubernetes.io/component'],
      ])
      return [container.name, container.command] as const
    })
    expect(new Map(commands)).toEqual(processes)
    const web = workloads.find(({ metadata }) => metadata.name === 'board-web')
    for (const { spec } of objects.filter(({ kind }) => kind === 'Service' || kind === 'PodDisruptionBudget'))
      expect(spec.selector.matchLabels ?? spec.selector).toEqual(web.metadata.labels)
  })

  it('sets variables that the program knows, and takes the rest of a Secret', () => {
    const { data } = objects.find(({ kind }) => kind === 'ConfigMap')
    expect(Object.keys(data).filter((name) => !isKnown(name))).toEqual([])
    const secrets = [...textOf(`${directory}/kustomization.yaml`).matchAll(/--from-literal=([A-Z_]+)/g)].map(
      ([, name]) => name!,
    )
    const all = { ...data, ...Object.fromEntries(secrets.map((name) => [name, set[name] ?? 'postgres://a:b@c/d'])) }
    expect(parseConfig(all, { requireDatabase: true }).observability.metricsPort).toBe(9100)
  })

  it('probes each at its port, and gives it the time to finish', () => {
    const config = parseConfig({ ...set, DATABASE_URL: 'postgres://a:b@c/d' })
    for (const { kind, spec } of workloads.filter(({ kind }) => kind === 'Deployment')) {
      const { containers, terminationGracePeriodSeconds } = spec.template.spec
      const [{ command, ports, readinessProbe, startupProbe, livenessProbe, lifecycle }] = containers
      const [, process, worker] = command
      expect([kind, ports[0].containerPort]).toEqual([kind, process === 'web' ? 8055 : portOf(worker)])
      for (const probe of [readinessProbe, startupProbe])
        expect(probe.httpGet).toEqual({ path: '/ready', port: ports[0].name })
      expect(livenessProbe.httpGet).toEqual({ path: '/health', port: ports[0].name })
      const pause = lifecycle?.preStop.sleep.seconds ?? 0
      expect(terminationGracePeriodSeconds).toBeGreaterThan(longestStop(config) + pause)
    }
  })
})
