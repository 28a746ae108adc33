/* The page /docs: shows /openapi as whoever is signed in here. The token is kept by this page alone and goes with it. */

const { SwaggerUIBundle } = window
/** Where the API is: this page is `docs` below it. */
const base = new URL('.', location.href).href.replace(/\/$/, '')
let token

const element = (id) => document.getElementById(id)

const dark = matchMedia('(prefers-color-scheme: dark)')
const followScheme = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', followScheme)
followScheme()

async function call(path, options = {}) {
  const headers = { ...options.headers, ...(token !== undefined && { authorization: `Bearer ${token}` }) }
  const response = await fetch(`${base}/${path}`, { ...options, headers })
  const body = await response.json()
  if (response.ok) return body
  throw new Error(body.message ?? body.error?.message ?? `${path} answered ${response.status}`)
}

const post = (path, body) =>
  call(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })

/** Operations whose path, summary or tag has the text. */
function opsFilter(tagged, text) {
  const wanted = text.toLowerCase()
  const has = (...words) => words.join(' ').toLowerCase().includes(wanted)
  return tagged
    .map((tag, name) =>
      has(name)
        ? tag
        : tag.update('operations', (operations) =>
            operations.filter((one) => has(one.get('path'), one.getIn(['operation', 'summary']))),
          ),
    )
    .filter((tag) => tag.get('operations').size > 0)
}

/**
 * The part of a document that `path` needs: that part and the components it names. The viewer reads the whole of what it is
 * given for each reference it follows, which takes seconds for a document of a megabyte.
 */
function excerpt(document, path) {
  const kinds = Object.keys(document.components ?? {})
  const components = Object.fromEntries(kinds.map((kind) => [kind, {}]))
  const part = { ...document, paths: {}, components }
  const take = ([section, ...names]) => {
    // Of `/paths` the whole item, of `/components` one of its kind or all of them.
    const name = names[section === 'paths' ? 0 : 1]
    const at = (whole) => (section === 'paths' ? whole.paths : whole.components[names[0]])
    const from = at(document) ?? {}
    const into = at(part)
    for (const key of name === undefined ? Object.keys(from) : [name]) {
      if (key in into) continue
      into[key] = from[key]
      JSON.stringify(from[key], (word, value) => {
        if (word === '$ref') take(value.slice('#/'.length).split('/'))
        return value
      })
    }
  }
  take(path)
  return part
}

const viewerPlugin = {
  fn: { opsFilter },
  statePlugins: {
    // Its own parser is one of YAML, and much slower.
    spec: {
      wrapActions: {
        parseToJson:
          (_, { specActions }) =>
          (text) =>
            specActions.updateJsonSpec(JSON.parse(text)),
      },
    },
  },
  afterLoad() {
    const { resolveSubtree } = this.fn
    this.fn.resolveSubtree = (document, path, options) => resolveSubtree(excerpt(document, path), path, options)
  },
}

async function show() {
  const spec = await call('openapi')
  showHidden(spec['x-hidden-families'] ?? [])
  document.title = `${spec.info.title}: API reference`
  SwaggerUIBundle({
    domNode: element('api'),
    // What is tried here goes here, whatever the public address of the API is.
    spec: { ...spec, servers: [{ url: base }] },
    presets: [SwaggerUIBundle.presets.apis],
    plugins: [viewerPlugin],
    layout: 'BaseLayout',
    docExpansion: 'none',
    defaultModelsExpandDepth: -1,
    filter: true,
    validatorUrl: null,
    requestInterceptor: (request) => {
      if (token !== undefined && request.headers.Authorization === undefined)
        request.headers.Authorization = `Bearer ${token}`
      return request
    },
  })
}

function showHidden(families) {
  const items = families.map(({ name, variable }) => {
    const item = document.createElement('li')
    const code = document.createElement('code')
    code.textContent = `${variable}=true`
    item.append(`${name}: `, code)
    return item
  })
  element('hidden-families').hidden = items.length === 0
  element('hidden-families')
    .querySelector('ul')
    .replaceChildren(...items)
}

const say = (words) => {
  element('who').textContent = words
}

/** Shows what the owner of a token may do; a token that opens nothing is forgotten again. */
async function become(given, name) {
  const before = token
  token = given
  try {
    await show()
  } catch (error) {
    token = before
    throw error
  }
  say(name === undefined ? 'You see what anybody may do.' : `You see what ${name} may do.`)
  for (const id of ['sign-in', 'by-key']) element(id).hidden = given !== undefined
  element('second-factor').hidden = true
  element('sign-out').hidden = given === undefined
}

function onSubmit(id, work) {
  element(id).addEventListener('submit', (event) => {
    event.preventDefault()
    const form = event.currentTarget
    work(Object.fromEntries(new FormData(form))).then(
      () => form.reset(),
      (error) => say(error.message),
    )
  })
}

let pending

onSubmit('sign-in', async ({ email, password }) => {
  const answer = await post('auth/login', { email, password })
  if (answer.token !== undefined) return become(answer.token, email)
  pending = { twoFactorToken: answer.twoFactorToken, email }
  element('second-factor').hidden = false
  say('Your account has a second factor.')
})
onSubmit('second-factor', async ({ code }) => {
  const answer = await post('auth/2fa/verify', { twoFactorToken: pending.twoFactorToken, code })
  await become(answer.token, pending.email)
})
onSubmit('by-key', ({ token: given }) => become(given.trim(), 'the owner of this token'))

element('sign-out').addEventListener('click', () => {
  // Of a key there is no session to end.
  post('auth/logout', {})
    .catch(() => undefined)
    .then(() => become(undefined))
    .catch((error) => say(error.message))
})

show().catch((error) => say(error.message))
