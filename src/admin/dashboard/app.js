document.querySelector('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  await fetch('/login', { method: 'POST', body: new URLSearchParams(new FormData(event.target)) });
});
