/* Signs in with a passkey: asks for a challenge, has the authenticator answer it, and goes on as the page would. */

const button = document.getElementById('passkey')
const problem = document.getElementById('passkey-problem')
/** Where the API is: this file is `oauth/passkey.js` below it. */
const base = new URL('..', import.meta.url)

async function post(path, body) {
  const response = await fetch(new URL(path, base), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const answer = await response.json()
  if (response.ok) return answer
  throw new Error(answer.message ?? `The server answered ${response.status}`)
}

button?.addEventListener('click', async () => {
  problem.hidden = true
  try {
    const { options, challengeId } = await post('auth/passkey/authenticate/options', {})
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options)
    const credential = await navigator.credentials.get({ publicKey })
    await post('auth/passkey/authenticate/verify', { challengeId, response: credential.toJSON(), authMode: 'cookie' })
    location.assign(new URL(`oauth/authorize?${document.querySelector('[name=request]').value}`, base))
  } catch (error) {
    problem.textContent = error.message
    problem.hidden = false
  }
})
