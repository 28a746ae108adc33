import { readFile } from 'node:fs/promises'
import type { FastifyReply } from 'fastify'
import type { Scope } from '../../../access/scopes.ts'
import { isLoopback } from '../../../config/issuer.ts'
import { escapeHtml } from '../../../language/text.ts'
import type { Client } from './clients.ts'

/*
 * The pages that users see: made here, without scripts but for the one that asks an authenticator. Everything in them that
 * comes from elsewhere is text. Their addresses are relative to each other, so that they work below any path of a proxy.
 */

/** The part about the installation that every page shows. */
type PageFrame = { readonly project: string }

/** Ways to sign in, as the page offers them. */
export type SignInWays = {
  readonly password: boolean
  readonly mail: boolean
  readonly passkey: boolean
  readonly providers: readonly string[]
}

export type HtmlPage = {
  readonly title: string
  readonly body: string
  readonly script?: true
  readonly refresh?: string
}

const policy = (hasScript: boolean): string =>
  [
    "default-src 'none'; style-src 'self'",
    ...(hasScript ? ["script-src 'self'; connect-src 'self'"] : []),
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'",
  ].join('; ')

/** Sends a page that no other page may frame and no cache keeps. */
export function sendPage(reply: FastifyReply, frame: PageFrame, page: HtmlPage, status = 200): FastifyReply {
  return reply
    .code(status)
    .headers({
      'content-security-policy': policy(page.script === true),
      'x-frame-options': 'DENY',
      'x-content-type-options': 'nosniff',
      // With `no-referrer` browsers would not say where forms come from.
      'referrer-policy': 'same-origin',
      'cross-origin-opener-policy': 'same-origin',
      'cache-control': 'no-store',
    })
    .type('text/html; charset=utf-8')
    .send(htmlOf(frame, page))
}

function htmlOf({ project }: PageFrame, { title, body, script, refresh }: HtmlPage): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)} · ${escapeHtml(project)}</title>
${refresh === undefined ? '' : `<meta http-equiv="refresh" content="0; url=${escapeHtml(refresh)}">\n`}<link rel="stylesheet" href="page.css">
${script ? '<script type="module" src="passkey.js"></script>\n' : ''}</head>
<body>
<main>
<p class="project">${escapeHtml(project)}</p>
<h1>${escapeHtml(title)}</h1>
${body}
</main>
</body>
</html>
`
}

const hidden = (name: string, value: string): string =>
  `<input type="hidden" name="${name}" value="${escapeHtml(value)}">`

const form = (action: string, query: string, inside: string): string =>
  `<form method="post" action="${action}">${hidden('request', query)}${inside}</form>`

const alert = (message: string | undefined): string =>
  message === undefined ? '' : `<p role="alert" class="alert">${escapeHtml(message)}</p>`

type SignInPage = {
  readonly client: Client
  readonly query: string
  readonly ways: SignInWays
  readonly email?: string | undefined
  readonly problem?: string | undefined
}

/** Asks a user to sign in, by every way that the installation has. */
export function signInPage({ client, query, ways, email = '', problem }: SignInPage): HtmlPage {
  const address = `<label>E-mail <input type="email" name="email" autocomplete="username webauthn" required value="${escapeHtml(email)}"></label>`
  const parts = [
    `<p>to go on to <strong>${escapeHtml(client.name)}</strong></p>`,
    alert(problem),
    ways.password
      ? form(
          'sign-in',
          query,
          `${address}<label>Password <input type="password" name="password" autocomplete="current-password" required></label><button>Sign in</button>`,
        )
      : '',
    ways.passkey
      ? '<p><button type="button" id="passkey">Sign in with a passkey</button></p><p id="passkey-problem" class="alert" role="alert" hidden></p>'
      : '',
    ways.mail
      ? `<details><summary>Without a password</summary>${form('sign-in-mail', query, `${address}<button>Mail me a code</button>`)}</details>`
      : '',
    ...ways.providers.map(
      (id) =>
        `<p><a class="button" href="sign-in-social?${escapeHtml(String(new URLSearchParams({ provider: id, request: query })))}">Continue with ${escapeHtml(id)}</a></p>`,
    ),
  ]
  return { title: 'Sign in', body: parts.join('\n'), ...(ways.passkey && { script: true as const }) }
}

/** Asks for the code of a mail. */
export function codePage({
  query,
  email,
  problem,
}: Pick<SignInPage, 'query' | 'problem'> & { readonly email: string }): HtmlPage {
  const inside = `${hidden('email', email)}<label>Code <input name="code" autocomplete="one-time-code" required autofocus></label><button>Sign in</button>`
  const said = `<p>If ${escapeHtml(email)} has an account, it has been sent a code.</p>`
  return { title: 'Enter the code', body: said + alert(problem) + form('sign-in-code', query, inside) }
}

/** Asks for the second factor. */
export function secondFactorPage({
  query,
  token,
  problem,
}: Pick<SignInPage, 'query' | 'problem'> & { readonly token: string }): HtmlPage {
  const inside = `${hidden('twoFactorToken', token)}<label>Code <input name="code" autocomplete="one-time-code" required autofocus></label><button>Go on</button>`
  const said = '<p>Enter the code of your authenticator app, or one of your backup codes.</p>'
  return { title: 'Second factor', body: said + alert(problem) + form('sign-in-second-factor', query, inside) }
}

type ConsentPage = {
  readonly client: Client
  readonly query: string
  readonly ticket: string
  readonly redirectUri: string
  readonly scopes: readonly string[]
  readonly email: string
  readonly tenant: string | undefined
}

const meanings: Readonly<Record<Scope | 'openid' | 'profile' | 'email' | 'offline_access', string>> = {
  read: 'Read everything that you can read',
  write: 'Create, change and delete what you can',
  admin: 'Administer: collections, permissions, users, settings, webhooks, as far as you may',
  openid: 'Know who you are',
  profile: 'See your name',
  email: 'See your e-mail address',
  offline_access: 'Do so while you are away, until you end it',
}

/** Asks whether a program may act for the user. It names who vouches for the program, and where the answer goes. */
export function consentPage({ client, query, ticket, redirectUri, scopes, email, tenant }: ConsentPage): HtmlPage {
  const { host } = client
  const who =
    host === undefined
      ? `A program that calls itself <strong>${escapeHtml(client.name)}</strong>`
      : `<strong>${escapeHtml(client.name)}</strong> of <strong class="host">${escapeHtml(host)}</strong>`
  const where = tenant === undefined ? '' : ` at ${escapeHtml(tenant)}`
  const list = scopes.map((scope) => `<li>${escapeHtml(meanings[scope as keyof typeof meanings])}</li>`).join('')
  const decision = `${hidden('ticket', ticket)}<button name="decision" value="allow">Allow</button><button name="decision" value="deny" class="quiet">Deny</button>`
  const body = `<p>${who} asks to act for <strong>${escapeHtml(email)}</strong>${where}:</p>
<ul>${list}</ul>
<p>The answer goes to <strong class="host">${escapeHtml(destinationOf(redirectUri))}</strong>. Allow it only if you have just asked for this there.</p>
${form('consent', query, decision)}
${form('sign-out', query, '<button class="link">Use another account</button>')}`
  return { title: 'Allow access?', body }
}

/** A host, or the program of a scheme of its own. */
function destinationOf(redirectUri: string): string {
  const { protocol, hostname, host } = new URL(redirectUri)
  if (protocol === 'https:') return host
  return isLoopback(hostname) ? 'a program on this computer' : `the program of ${protocol}`
}

/**
 * Leads the browser on: a form may not lead to another site (`form-action`), but a page may. The link is for programs whose
 * addresses browsers open only on request.
 */
export function leavingPage(client: Pick<Client, 'name'>, address: string): HtmlPage {
  const body = `<p>Going back to ${escapeHtml(client.name)}. <a href="${escapeHtml(address)}">Go on</a> if nothing happens; then this page can be closed.</p>`
  return { title: 'One moment', body, refresh: address }
}

/** Says what is wrong with a request, and where its program is. */
export function refusalPage(redirectUri: string, address: string, description: string): HtmlPage {
  const back = `<p><a href="${escapeHtml(address)}">Go back</a> to <strong class="host">${escapeHtml(destinationOf(redirectUri))}</strong>.</p>`
  return { title: 'This did not work', body: alert(description) + back }
}

/** A page that asks for the one it stands for: a browser then sends cookies that other sites cannot make it send. */
export function reloadingPage(query: string): HtmlPage {
  return { title: 'One moment', body: '', refresh: `authorize?${query}` }
}

export const problemPage = (message: string): HtmlPage => ({ title: 'This did not work', body: alert(message) })

const files = { 'page.css': 'text/css', 'passkey.js': 'text/javascript' } as const
type PageFileName = keyof typeof files
export const pageFiles = Object.keys(files) as readonly PageFileName[]

export async function sendPageFile(reply: FastifyReply, name: PageFileName): Promise<FastifyReply> {
  const content = await readFile(new URL(`./page/${name}`, import.meta.url))
  reply.headers({ 'x-content-type-options': 'nosniff', 'cache-control': 'no-cache' })
  return reply.type(`${files[name]}; charset=utf-8`).send(content)
}
