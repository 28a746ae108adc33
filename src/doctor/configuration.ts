import { type Config, ConfigError, keptSecretKey, parseInstallation, secretKeyFile } from '../config/config.ts'
import { issuerOf } from '../config/issuer.ts'
import type { Env, VariableProblem } from '../config/variable.ts'
import { type Finding, ok, problem, warning } from './finding.ts'

const check = 'configuration'
const differentCharacters = 10
const shortestKey = 32

/**
 * Reads the configuration like the processes do, and says everything that is wrong with it. Where single variables are
 * bad, the config is the one without them, so that the rest can be looked at; undefined when there is nothing left to
 * work with.
 */
export function readConfiguration(env: Env): { readonly config: Config | undefined; readonly findings: Finding[] } {
  try {
    const config = parseInstallation(env)
    const doubts = config.warnings.map((says) => warning(check, says, 'see docs/config.md'))
    return {
      config,
      findings: [
        ...(doubts.length > 0 ? doubts : [ok(check, 'complete')]),
        judgeSecretKey(config),
        judgeOAuth(config),
        judgeScoping(config),
      ],
    }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    if (error.problems.length === 0)
      return { config: undefined, findings: [problem(check, error.message, 'correct the file')] }
    return { config: withoutBad(env, error.problems), findings: error.problems.map(fromProblem) }
  }
}

/** Whether the key that signs sessions and seals secrets could be guessed. Never shows any of it. */
export function judgeSecretKey({ auth, database, server }: Config): Finding {
  const { secretKey } = auth
  const remedy = 'set SECRET_KEY to 32 random bytes, e.g. of: openssl rand -base64 32'
  const judged = server.environment === 'production' ? problem : warning
  if (secretKey === '') return judgeMissingKey(database.dataDir, remedy)
  if (secretKey.length < shortestKey)
    return judged('secret key', `SECRET_KEY has less than ${shortestKey} characters`, remedy)
  if (new Set(secretKey).size < differentCharacters)
    return judged('secret key', 'SECRET_KEY repeats few characters', remedy)
  if (/change.?me|secret|password|example/i.test(secretKey))
    return judged('secret key', 'SECRET_KEY looks like the one of an example', remedy)
  return ok('secret key', 'long enough')
}

/** Another key than the kept one would open nothing of what that one has sealed. */
function judgeMissingKey(dataDir: string, remedy: string): Finding {
  if (keptSecretKey(dataDir) === undefined)
    return warning('secret key', 'SECRET_KEY is not set: only npm start makes one up', remedy)
  const file = secretKeyFile(dataDir)
  return warning(
    'secret key',
    `SECRET_KEY is not set: npm start uses the key that it keeps in ${file}`,
    `put the key that npm start keeps in ${file} into .env as SECRET_KEY; another one does not open the stored secrets`,
  )
}

/** Whether programs can be given access. */
export function judgeOAuth(config: Config): Finding {
  const check = 'oauth'
  if (!config.oauthServer.enabled) return ok(check, 'turned off by OAUTH_SERVER_ENABLED')
  const { issuer } = issuerOf(config) ?? {}
  if (issuer !== undefined) return ok(check, `programs sign in at ${issuer}`)
  const says = 'off: no address is known that tokens of programs could be safe for'
  const remedy = 'set BASE_URL to the public address of the API, https in production; or OAUTH_SERVER_ENABLED=false'
  return warning(check, says, remedy)
}

/** Whether the channel keeps to the row rules of permissions. */
export function judgeScoping({ realtime }: Config): Finding {
  const check = 'rows on the socket'
  if (!realtime.enabled) return ok(check, 'no channel: SOCKET_ENABLED is false')
  if (realtime.rowLevelScoping) return ok(check, 'only those that the subscriber may read')
  const says = 'subscribers also get changes of rows that their read rule hides'
  return warning(check, says, 'set REALTIME_ROW_LEVEL_SCOPING=true')
}

function fromProblem({ variable, message, doc }: VariableProblem): Finding {
  return problem(check, `${variable} ${message}`, `correct ${variable} (${doc})`)
}

const standIn = 'stands in while the doctor looks at the rest; signs nothing'

/** Whether the key of a configuration is none that anything was ever sealed with. */
export const isStandIn = ({ auth }: Config): boolean => auth.secretKey === standIn

/** The same with the key that `npm start` keeps beside its data, where SECRET_KEY is not set: by that its processes seal. */
export function withKeptKey(config: Config): Config {
  const { auth, database } = config
  const secretKey = auth.secretKey || keptSecretKey(database.dataDir)
  return secretKey === undefined ? config : { ...config, auth: { ...auth, secretKey } }
}

function withoutBad(env: Env, problems: readonly VariableProblem[]): Config | undefined {
  const bad = new Set(problems.map(({ variable }) => variable))
  const rest = Object.fromEntries(Object.entries(env).filter(([name]) => !bad.has(name)))
  try {
    return parseInstallation({ ...rest, ...(bad.has('SECRET_KEY') && { SECRET_KEY: standIn }) })
  } catch (error) {
    if (error instanceof ConfigError) return undefined
    throw error
  }
}

/** With which credential a client comes: an API key in a header, or what its user allows in a browser. */
type Credential = 'key' | 'OAuth'

/** The lines to paste into clients of the MCP endpoint, by client. */
export function clientLines(url: string, by: Credential): readonly (readonly [string, string])[] {
  const key = 'Bearer <API key>'
  const server = { url, ...(by === 'key' && { headers: { Authorization: key } }) }
  const header = by === 'key' ? ` --header "Authorization: ${key}"` : ''
  const lines: readonly (readonly [string, string])[] = [
    ['Claude', `claude mcp add --transport http daybook ${url}${header}`],
    ['VS Code', `code --add-mcp '${JSON.stringify({ name: 'daybook', type: 'http', ...server })}'`],
    ['Cursor', `in ~/.cursor/mcp.json: ${JSON.stringify({ mcpServers: { daybook: server } })}`],
  ]
  // It can be given no header.
  if (by === 'key') return lines
  return [...lines, ['ChatGPT', `Settings, Apps, Developer mode, Create: name daybook, server URL ${url}, OAuth`]]
}

/** Where assistants reach the endpoint, and the lines to paste. */
export function checkMcp(config: Config): Finding[] {
  const { mcp, server } = config
  if (!mcp.enabled) return []
  const url = `${server.baseUrl ?? `http://127.0.0.1:${server.port}`}${mcp.path}`
  const issuer = issuerOf(config)
  const ways: readonly Credential[] = issuer === undefined ? ['key'] : ['OAuth', 'key']
  const lines = ways.flatMap((by) =>
    clientLines(url, by).map(([client, line]) => ok(`mcp for ${client} by ${by}`, line)),
  )
  if (issuer === undefined && config.oauthServer.enabled)
    lines.push(warning('mcp by OAuth', 'is off: it needs BASE_URL with https', 'set BASE_URL to the public address'))
  if (server.baseUrl !== undefined) return lines
  const says = 'BASE_URL is not set: the lines below are for clients on this machine'
  return [warning('mcp', says, 'set BASE_URL to the public address'), ...lines]
}
